// From values to nodes. Text becomes text nodes and nothing else; there is no way from a string to markup. What would
// turn the direction of the words around it is shown as an escape.
//
//     h('p', { class: 'note', onclick: close }, 'Hello, ', () => name(), '.')
//
// A child may be text, a number, a node, a list of children, nothing (null, undefined, false), or a function of
// signals that gives any of these and is asked again when they change. A prop may be such a function, too.

import { effect, onDispose, root, signal, untracked } from './signals.js';

/** @typedef {string | number | Node | null | undefined | false | Child[] | (() => any)} Child */

const SVG = 'http://www.w3.org/2000/svg';

/** Attributes that may be set. A name that is not here is a mistake, or worse. */
const ATTRIBUTES = new Set(
    `class id role title type value name placeholder for href tabindex rows dir lang spellcheck autocomplete hidden
   disabled checked selected open datetime target rel download src alt width height colspan scope inputmode enterkeyhint
   maxlength d x y x1 x2 y1 y2 cx cy r rx points viewBox transform preserveAspectRatio focusable
   popover start multiple accept text-anchor dominant-baseline autocapitalize`.split(/\s+/),
);

/** Attributes that people read, or hear. */
const SHOWN = /^(?:title|alt|placeholder|aria-label|aria-description|aria-roledescription|aria-valuetext)$/;

/** What `printable_lines` of holdfast/printable.py escapes. */
const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** Text that only shows itself. @param {string | number} value */
export function printable(value) {
    return String(value).replaceAll('\r\n', '\n').replace(UNSAFE, escaped);
}

/** @param {string} found */
function escaped(found) {
    if (found === '\r') return '\\r';
    const digits = found.charCodeAt(0).toString(16);
    return digits.length <= 2 ? `\\x${digits.padStart(2, '0')}` : `\\u${digits.padStart(4, '0')}`;
}

/** Where a link may lead: a place in this page, a page of this server, or a page of the web. */
const SAFE_LINK = /^(?:#|\/(?!\/)|https?:\/\/)/i;
const SAFE_IMAGE = /^blob:/;

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {Record<string, any> | null} [props] @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props, ...children) {
    return build(document.createElement(tag), props, children);
}

/** The same for pictures. @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children */
export function s(tag, props, ...children) {
    return build(document.createElementNS(SVG, tag), props, children);
}

/** @template {Element} E @param {E} element @param {Record<string, any> | null | undefined} props @param {Child[]} children @returns {E} */
function build(element, props, children) {
    append(element, children); // first: a select has no value without its options
    for (const [name, value] of Object.entries(props ?? {})) prop(element, name, value);
    return element;
}

/** @param {Element} element @param {string} name @param {any} value */
function prop(element, name, value) {
    if (name === 'ref') {
        value(element);
    } else if (name.startsWith('on')) {
        element.addEventListener(name.slice(2), value);
    } else if (name === 'vars') {
        vars(/** @type {HTMLElement} */ (element), value);
    } else if (typeof value === 'function') {
        effect(() => assign(element, name, value()));
    } else {
        assign(element, name, value);
    }
}

/** Numbers for the style sheet. @param {HTMLElement} element @param {Record<string, any>} named */
function vars(element, named) {
    for (const [name, value] of Object.entries(named)) {
        if (typeof value === 'function') effect(() => element.style.setProperty(`--${name}`, String(value())));
        else element.style.setProperty(`--${name}`, String(value));
    }
}

/** @param {Element} element @param {string} name @param {any} value */
function assign(element, name, value) {
    if (!ATTRIBUTES.has(name) && !/^(?:aria|data)-[a-z-]+$/.test(name)) throw new Error(`dom: attribute ${name}`);
    if (name === 'href' && value != null && !SAFE_LINK.test(value)) value = null;
    if (name === 'src' && value != null && !SAFE_IMAGE.test(value)) value = null;
    if (name === 'value' && 'value' in element) {
        if (/** @type {any} */ (element).value !== value) /** @type {any} */ (element).value = value ?? '';
    } else if (value === null || value === undefined || value === false) {
        element.removeAttribute(name);
    } else {
        element.setAttribute(name, value === true ? '' : SHOWN.test(name) ? printable(value) : String(value));
    }
}

/** @param {Node} parent @param {Child[]} children */
export function append(parent, children) {
    for (const child of children) {
        if (typeof child === 'function') parent.appendChild(changing(child));
        else if (Array.isArray(child)) append(parent, child);
        else if (child instanceof Node) parent.appendChild(child);
        else if (child !== null && child !== undefined && child !== false)
            parent.appendChild(document.createTextNode(printable(child)));
    }
}

/** A stretch of nodes between two marks that is made anew when its signals change. @param {() => any} make */
function changing(make) {
    const start = document.createComment('');
    const end = document.createComment('');
    const made = document.createDocumentFragment();
    made.append(start, end);
    /** @type {Text | null} */
    let text = null;
    effect(() => {
        const next = make();
        if (typeof next === 'string' || typeof next === 'number') {
            if (text?.isConnected || text?.parentNode) {
                const shown = printable(next);
                if (text.data !== shown) text.data = shown;
                return;
            }
            empty(start, end);
            text = document.createTextNode(printable(next));
            end.parentNode?.insertBefore(text, end);
            return;
        }
        text = null;
        empty(start, end);
        const fragment = document.createDocumentFragment();
        append(fragment, [next]);
        end.parentNode?.insertBefore(fragment, end);
    });
    return made;
}

/** @param {Node} start @param {Node} end */
function empty(start, end) {
    while (start.nextSibling && start.nextSibling !== end) start.nextSibling.remove();
}

/**
 * A list whose nodes are kept: an entry is known by its key, gets a signal of its value, and is moved, not made anew.
 * @template T
 * @param {() => T[]} list
 * @param {(entry: T) => string | number} key
 * @param {(entry: import('./signals.js').Signal<T>) => Node} render
 */
export function each(list, key, render) {
    const end = document.createComment('');
    const made = document.createDocumentFragment();
    made.append(end);
    /** @type {Map<string | number, {node: Node, value: any, dispose: () => void}>} */
    const shown = new Map();
    onDispose(() => shown.forEach((entry) => entry.dispose()));
    effect(() => {
        const entries = list();
        untracked(() => arrange(entries));
    });
    return made;

    /** @param {T[]} entries */
    function arrange(entries) {
        const parent = /** @type {Node} */ (end.parentNode);
        const wanted = new Set(entries.map(key));
        for (const [known, entry] of shown) {
            if (wanted.has(known)) continue;
            entry.dispose();
            /** @type {ChildNode} */ (entry.node).remove();
            shown.delete(known);
        }
        /** @type {Node} */
        let next = end;
        for (const value of [...entries].reverse()) {
            const entry = shown.get(key(value)) ?? make(value);
            entry.value.set(value);
            if (entry.node.nextSibling !== next || entry.node.parentNode !== parent)
                parent.insertBefore(entry.node, next);
            next = entry.node;
        }
    }

    /** @param {T} value */
    function make(value) {
        const held = signal(value);
        /** @type {any} */
        const entry = { value: held };
        entry.dispose = root(() => (entry.node = render(held)));
        shown.set(key(value), entry);
        return entry;
    }
}

/** Put a view in place of whatever an element holds. @param {Element} place @param {() => Child} make @returns {() => void} */
export function mount(place, make) {
    return root(() => {
        place.replaceChildren();
        append(place, [make()]);
        onDispose(() => place.replaceChildren());
    });
}

export const icon = (/** @type {string} */ d, /** @type {string} */ label = '') =>
    s(
        'svg',
        {
            class: 'icon',
            viewBox: '0 0 20 20',
            focusable: 'false',
            ...(label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' }),
        },
        s('path', { d }),
    );
