// What models write, as nodes. A small part of Markdown; everything else is shown as the text that it is.
//
// 1. Only the elements made here can come out, and none of them fetches anything or runs anything.
// 2. A link shows its whole address and leads there when it is clicked, never before. Only http and https are links.
// 3. A picture is a link.
// 4. It takes time in proportion to the text: no expression here looks at the same text again and again.

import { h } from '../core/dom.js';

const LINK = /^https?:\/\/[^\s<>"'`]+$/i;

/** @param {string} text @returns {Node[]} */
export function markdown(text) {
    return blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

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
    const open = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/.exec(lines[at]);
    if (!open) return null;
    let end = at + 1;
    while (end < lines.length && !lines[end].trim().startsWith(open[1])) end += 1;
    const code = lines.slice(at + 1, end).join('\n');
    const node = h(
        'pre',
        { class: 'code', tabindex: '0', 'aria-label': open[2] ? `code, ${open[2]}` : 'code', role: 'region' },
        h('code', null, code),
    );
    return { node, lines: Math.min(end + 1, lines.length) - at };
}

/** @param {string} line @returns {Block} */
function heading(line) {
    const found = /^(#{1,6})\s+(.*)$/.exec(line);
    return found && { node: h('p', { class: `heading heading-${found[1].length}` }, inline(found[2])), lines: 1 };
}

/** @param {string} line @returns {Block} */
function rule(line) {
    return /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/.test(line) ? { node: h('hr'), lines: 1 } : null;
}

/** @param {string[]} lines @param {number} at @param {number} depth @returns {Block} */
function quote(lines, at, depth) {
    if (!lines[at].startsWith('>') || depth > 5) return null;
    let end = at;
    while (end < lines.length && lines[end].startsWith('>')) end += 1;
    const inner = lines.slice(at, end).map((line) => line.replace(/^> ?/, ''));
    return { node: h('blockquote', null, blocks(inner, depth + 1)), lines: end - at };
}

const BULLET = /^( {0,6})(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;

/** @param {string[]} lines @param {number} at @param {number} depth @returns {Block} */
function list(lines, at, depth) {
    const first = BULLET.exec(lines[at]);
    if (!first || depth > 5) return null;
    const ordered = first[2] !== undefined;
    /** @type {string[][]} */
    const entries = [];
    let end = at;
    for (; end < lines.length; end += 1) {
        const bullet = BULLET.exec(lines[end]);
        if (bullet && bullet[1].length <= first[1].length + 1 && (bullet[2] !== undefined) === ordered)
            entries.push([bullet[3]]);
        else if (lines[end].trim() && /^\s{2,}/.test(lines[end]))
            entries.at(-1)?.push(lines[end].replace(/^ {2,4}/, ''));
        else if (!lines[end].trim() && BULLET.test(lines[end + 1] ?? '')) continue;
        else break;
    }
    const items = entries.map((entry) =>
        h('li', null, entry.length === 1 ? inline(entry[0]) : blocks(entry, depth + 1)),
    );
    return { node: h(ordered ? 'ol' : 'ul', null, items), lines: end - at };
}

/** @param {string} line */
const cells = (line) =>
    line
        .trim()
        .replace(/^\||\|$/g, '')
        .split('|')
        .map((cell) => cell.trim());

/** @param {string[]} lines @param {number} at @returns {Block} */
function table(lines, at) {
    const next = lines[at + 1] ?? '';
    if (!lines[at].includes('|') || !next.includes('-') || !/^[\s|:-]+$/.test(next)) return null;
    let end = at + 2;
    while (end < lines.length && lines[end].includes('|')) end += 1;
    const rows = lines.slice(at + 2, end).map((line) =>
        h(
            'tr',
            null,
            cells(line).map((cell) => h('td', null, inline(cell))),
        ),
    );
    const head = h(
        'tr',
        null,
        cells(lines[at]).map((cell) => h('th', { scope: 'col' }, inline(cell))),
    );
    return {
        node: h(
            'div',
            { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'table' },
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
        !/^(?:#{1,6}\s|>| {0,3}(?:```|~~~))/.test(lines[end]) &&
        !BULLET.test(lines[end])
    )
        end += 1;
    return { node: h('p', null, inline(lines.slice(at, end).join('\n'))), lines: end - at };
}

// Each alternative begins with a sign of its own and ends at the next one like it, or at the end of a line.
const SPAN =
    /(?<!`)(`{1,3})([^`\n]+)\1|\*\*([^*\n]+)\*\*|__([^_\n]+)__|\*([^*\s][^*\n]*)\*|!?\[([^\]\n]{0,500})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>"'`)\]]{1,2000})/g;

/** @param {string} text @returns {(Node | string)[]} */
function inline(text) {
    /** @type {(Node | string)[]} */
    const made = [];
    let from = 0;
    for (const found of text.matchAll(SPAN)) {
        if (found.index > from) made.push(text.slice(from, found.index));
        made.push(...span(found));
        from = found.index + found[0].length;
    }
    if (from < text.length) made.push(text.slice(from));
    return made;
}

/** @param {RegExpMatchArray} found @returns {(Node | string)[]} */
function span(found) {
    const [whole, , code, strong, strong2, em, label, target, bare] = found;
    if (code !== undefined) return [h('code', null, code)];
    if (strong !== undefined) return [h('strong', null, strong)];
    if (strong2 !== undefined) return [h('strong', null, strong2)];
    if (em !== undefined) return [h('em', null, em)];
    if (bare !== undefined) {
        const tail = /[.,;:!?]+$/.exec(bare)?.[0] ?? '';
        return [link(bare.slice(0, bare.length - tail.length)), tail];
    }
    if (target !== undefined && LINK.test(target))
        return label && label !== target ? [`${label} (`, link(target), ')'] : [link(target)];
    return [whole];
}

/** A link that hides nothing: its text is where it leads. @param {string} url */
export function link(url) {
    return h('a', { href: url, target: '_blank', rel: 'noopener noreferrer nofollow', class: 'outside' }, url);
}
