// What models write, as nodes: Markdown without raw HTML. Everything else is shown as the text that it is.
//
// 1. Only the elements made here can come out, and none of them fetches anything or runs anything. `<br>` is one of
//    them: a cell of a table has no other way to begin a line.
// 2. A link shows its whole address and leads there when it is clicked, never before. Only http and https are links.
// 3. A picture is a link: its host would otherwise learn who reads. Pictures that are in the conversation are its parts.
// 4. Mathematics is shown as it was written; nothing in it is taken for emphasis.
// 5. It takes time in proportion to the text: no expression here looks at the same text again and again.

import { h } from '../core/dom.js';
import { codeBox } from './code.js';

const LINK = /^https?:\/\/[^\s<>"'`]+$/i;

/** @param {string} text @returns {Node[]} */
export function markdown(text) {
    return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

/** Where a long text can be parted so that both parts are whole: at an empty line outside of code. @param {string} text @param {number} most */
export function partingOf(text, most) {
    let [at, parting] = [0, 0];
    let fenced = '';
    for (const line of text.slice(0, most).split('\n')) {
        const mark = FENCE.exec(line)?.[1] ?? '';
        if (fenced ? line.trim().startsWith(fenced) : mark) fenced = fenced ? '' : mark;
        else if (!fenced && !line.trim()) parting = at;
        at += line.length + 1;
    }
    return parting || most;
}

/** Which way a block of several parts goes: as its first letter. (`dir=auto` passes over parts that have a `dir`.) @param {string} text */
function direction(text) {
    const letter = /\p{L}/u.exec(text)?.[0];
    return letter ? (/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/.test(letter) ? 'rtl' : 'ltr') : null;
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;

/** @param {string[]} lines @param {number} depth @returns {Node[]} */
function blocks(lines, depth) {
    /** @type {Node[]} */
    const made = [];
    let at = 0;
    while (at < lines.length) {
        const line = lines[at];
        if (!line.trim()) {
            at += 1;
            continue;
        }
        const taken =
            fence(lines, at) ??
            mathematics(lines, at) ??
            heading(line) ??
            rule(line) ??
            table(lines, at) ??
            quote(lines, at, depth) ??
            list(lines, at, depth) ??
            paragraph(lines, at);
        made.push(taken.node);
        at += taken.lines;
    }
    return made;
}

/** @typedef {{node: Node, lines: number} | null} Block */

/** @param {string[]} lines @param {number} at @returns {Block} */
function fence(lines, at) {
    const open = FENCE.exec(lines[at]);
    if (!open) return null;
    let end = at + 1;
    while (end < lines.length && !lines[end].trim().startsWith(open[1])) end += 1;
    const node = codeBox(lines.slice(at + 1, end).join('\n'), open[2]);
    return { node, lines: Math.min(end + 1, lines.length) - at };
}

/** A longer one is shown as text. */
const FORMULA_LINES = 100;

/** A formula of its own, between `$$` or `\\[` and `\\]`. @param {string[]} lines @param {number} at @returns {Block} */
function mathematics(lines, at) {
    const first = lines[at].trim();
    const close = first.startsWith('$$') ? '$$' : first.startsWith('\\[') ? '\\]' : '';
    if (!close) return null;
    let end = first.length > 3 && first.endsWith(close) ? at : at + 1;
    const most = Math.min(lines.length, at + FORMULA_LINES);
    while (end < most && lines[end].trim() && !lines[end].trim().endsWith(close)) end += 1;
    if (end === most || !lines[end].trim()) return null;
    const text = lines.slice(at, end + 1).join('\n').trim().slice(2, -2).trim();
    return { node: h('pre', { class: 'math', tabindex: '0', role: 'math', 'aria-label': text }, text), lines: end + 1 - at };
}

/** @param {string} line @returns {Block} */
function heading(line) {
    const found = /^(#{1,6})\s+(.*)$/.exec(line);
    return found && { node: h('p', { class: `heading heading-${found[1].length}`, dir: 'auto' }, inline(found[2])), lines: 1 };
}

const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;

/** @param {string} line @returns {Block} */
function rule(line) {
    return RULE.test(line) ? { node: h('hr'), lines: 1 } : null;
}

/** @param {string[]} lines @param {number} at @param {number} depth @returns {Block} */
function quote(lines, at, depth) {
    if (!lines[at].startsWith('>') || depth > 5) return null;
    let end = at;
    while (end < lines.length && lines[end].startsWith('>')) end += 1;
    const inner = lines.slice(at, end).map((line) => line.replace(/^> ?/, ''));
    return { node: h('blockquote', { dir: direction(inner.join('\n')) }, blocks(inner, depth + 1)), lines: end - at };
}

const BULLET = /^( {0,9})(?:[-*+]|(\d{1,9})[.)])( +|$)(.*)$/;

/** @param {string} line */
const indent = (line) => line.length - line.trimStart().length;

/** @param {string[]} lines @param {number} at @param {number} depth @returns {Block} */
function list(lines, at, depth) {
    const first = BULLET.exec(lines[at]);
    if (!first || depth > 5) return null;
    const ordered = first[2] !== undefined;
    const inside = first[1].length + 2; // models indent by two, whatever the width of the mark before the words
    /** @type {string[][]} */
    const entries = [];
    let end = at;
    for (; end < lines.length; end += 1) {
        const line = lines[end];
        const bullet = indent(line) < inside ? BULLET.exec(line) : null;
        if (bullet && (bullet[2] !== undefined) === ordered) entries.push([bullet[4]]);
        else if (line.trim() ? indent(line) >= inside : goesOn(lines, end, inside, ordered)) entries.at(-1)?.push(line);
        else break;
    }
    const items = entries.map((entry) => listItem(unindented(entry), depth));
    const start = ordered && first[2] !== '1' ? first[2] : null;
    const dir = direction(lines.slice(at, end).join('\n').replace(/\[[xX]\]/g, ''));
    return { node: ordered ? h('ol', { start, dir }, items) : h('ul', { dir }, items), lines: end - at };
}

/** Whether a list goes on after an empty line. @param {string[]} lines @param {number} at @param {number} inside @param {boolean} ordered */
function goesOn(lines, at, inside, ordered) {
    const next = lines[at + 1] ?? '';
    if (!next.trim()) return false;
    const bullet = BULLET.exec(next);
    return indent(next) >= inside || (bullet !== null && (bullet[2] !== undefined) === ordered);
}

/** The lines of an entry without what they are indented by, as its second one is. @param {string[]} entry */
function unindented([first, ...rest]) {
    const by = indent(rest.find((line) => line.trim()) ?? '');
    return [first, ...rest.map((line) => line.slice(Math.min(by, indent(line))))];
}

const TASK = /^\[([ xX])\]\s+/;

/** @param {string[]} entry @param {number} depth */
function listItem(entry, depth) {
    const task = TASK.exec(entry[0]);
    const words = task ? [entry[0].slice(task[0].length), ...entry.slice(1)] : entry;
    const said = words.length === 1 ? inline(words[0]) : blocks(words, depth + 1);
    if (!task) return h('li', null, said);
    const done = task[1] !== ' ';
    const box = h('input', { type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'done' : 'to do' });
    return h('li', { class: 'task' }, box, words.length === 1 ? said : h('div', null, said));
}

/** The cells of a row; a bar in code, or after a backslash, is a sign. @param {string} line */
const cells = (line) =>
    (line.trim().replace(/^\|/, '').match(/(?:\\.|`[^`]*`|[^|\\`]|[\\`])*(?:\||$)/g) ?? [])
        .filter((cell, n, all) => cell || n < all.length - 1)
        .map((cell) => cell.replace(/\|$/, '').replaceAll('\\|', '|').trim());

const ALIGNED = ['', 'to-right', 'to-left', 'to-centre'];

/** How a column is aligned, by the colons around its dashes. @param {string} rule */
const alignment = (rule) => ALIGNED[(rule.endsWith(':') ? 1 : 0) + (rule.startsWith(':') ? 2 : 0)];

/** So few characters, such as a date or an amount, stay on one line. */
const SHORT = 24;

/** @param {string[]} lines @param {number} at */
const beginsTable = (lines, at) => {
    const next = lines[at + 1] ?? '';
    return lines[at].includes('|') && next.includes('-') && /^[\s|:-]+$/.test(next);
};

/** @param {string[]} lines @param {number} at @returns {Block} */
function table(lines, at) {
    if (!beginsTable(lines, at)) return null;
    let end = at + 2;
    while (end < lines.length && lines[end].includes('|')) end += 1;
    const columns = cells(lines[at + 1]).map(alignment);
    /** @param {string} line @param {(cell: any[], kind: string) => Node} cell */
    const row = (line, cell) =>
        h(
            'tr',
            null,
            cells(line).map((text, n) =>
                cell(inline(text), [columns[n], text.length <= SHORT && 'short'].filter(Boolean).join(' ')),
            ),
        );
    const head = row(lines[at], (text, kind) => h('th', { scope: 'col', class: kind, dir: 'auto' }, text));
    const rows = lines
        .slice(at + 2, end)
        .map((line) => row(line, (text, kind) => h('td', { class: kind, dir: 'auto' }, text)));
    return {
        node: h(
            'div',
            { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'table', dir: direction(lines[at]) },
            h('table', null, h('thead', null, head), h('tbody', null, rows)),
        ),
        lines: end - at,
    };
}

/** @param {string[]} lines @param {number} at @returns {{node: Node, lines: number}} */
function paragraph(lines, at) {
    let end = at + 1;
    while (
        end < lines.length &&
        lines[end].trim() &&
        !/^(?:#{1,6}\s|>| {0,3}(?:```|~~~|\$\$|\\\[))/.test(lines[end]) &&
        !BULLET.test(lines[end]) &&
        !RULE.test(lines[end]) &&
        !beginsTable(lines, end)
    )
        end += 1;
    return { node: h('p', { dir: 'auto' }, inline(lines.slice(at, end).join('\n'))), lines: end - at };
}

// Each alternative begins with a sign of its own and ends at the next one like it, at the end of a line, or after so
// many characters.
const SPAN = new RegExp(
    [
        /\\([!-/:-@[-`{-~])/, // a sign that is only a sign
        /(?<!`)(`{1,3})([^`\n]+)\2/,
        /\\\(([^\n]{1,1000}?)\\\)|\$([^\s$](?:[^$\n]{0,500}[^\s$])?)\$(?!\d)/, // mathematics
        /\*\*\*([^*\n]{1,2000})\*\*\*/,
        /\*\*((?:[^*\n]|\*(?!\*)){1,2000})\*\*|(?<!\w)__([^_\n]+)__(?!\w)/,
        /\*([^*\s](?:[^*\n]*[^*\s])?)\*|(?<!\w)_([^_\s](?:[^_\n]*[^_\s])?)_(?!\w)/,
        /~~([^~\n]+)~~/,
        /!?\[([^\]\n]{0,500})\]\((?:<([^<>\s]{1,2000})>|((?:[^()\s<>]|\([^()\s]{0,200}\)){1,2000}))(?:\s{1,9}"[^"\n]{0,300}")?\)/,
        /<(https?:\/\/[^\s<>]{1,2000})>|(https?:\/\/(?:[^\s<>"'`()[\]]|\([^\s<>"'`()]{0,200}\)){1,2000})/,
        /<br ?\/?>/,
        /&(?:amp|lt|gt|quot|nbsp|#39);/,
    ]
        .map((each) => each.source)
        .join('|')
        // A backslash before ( begins mathematics, not a sign.
        .replace('[!-/:-@', "[!-'*-/:-@"),
    'g',
);

/** What models write for signs that HTML would take for its own. @type {Record<string, string>} */
const SIGNS = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&nbsp;': '\u00a0', '&#39;': "'" };

/** @param {string} text @param {number} [depth] @returns {(Node | string)[]} */
function inline(text, depth = 0) {
    /** @type {(Node | string)[]} */
    const made = [];
    let from = 0;
    for (const found of text.matchAll(SPAN)) {
        if (found.index > from) made.push(text.slice(from, found.index));
        made.push(...span(found, depth));
        from = found.index + found[0].length;
    }
    if (from < text.length) made.push(text.slice(from));
    return made;
}

/** @param {RegExpMatchArray} found @param {number} depth @returns {(Node | string)[]} */
function span(found, depth) {
    const [whole, sign, , code, math, math2, both, strong, strong2, em, em2, struck, label, target, target2, angled, bare] = found;
    /** @param {string} text */
    const within = (text) => (depth < 3 ? inline(text, depth + 1) : [text]);
    if (sign !== undefined) return [sign];
    if (code !== undefined) return [h('code', null, code)];
    if ((math ?? math2) !== undefined) return [h('span', { class: 'math', role: 'math' }, math ?? math2)];
    if (both !== undefined) return [h('strong', null, h('em', null, within(both)))];
    if ((strong ?? strong2) !== undefined) return [h('strong', null, within(strong ?? strong2))];
    if ((em ?? em2) !== undefined) return [h('em', null, within(em ?? em2))];
    if (struck !== undefined) return [h('s', null, within(struck))];
    if (bare !== undefined) {
        const tail = /[.,;:!?]+$/.exec(bare)?.[0] ?? '';
        return [link(bare.slice(0, bare.length - tail.length)), tail];
    }
    if (angled !== undefined) return [link(angled)];
    if (whole.startsWith('<br')) return [h('br')];
    if (whole.startsWith('&')) return [SIGNS[whole]];
    const to = target ?? target2 ?? '';
    if (LINK.test(to)) return label && label !== to ? [...within(label), ' (', link(to), ')'] : [link(to)];
    return [whole];
}

/** A link that hides nothing: its text is where it leads. @param {string} url */
export function link(url) {
    return h('a', { href: url, target: '_blank', rel: 'noopener noreferrer nofollow', class: 'outside' }, url);
}
