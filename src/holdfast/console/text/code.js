// Code with colours and a way to copy it. One pass over the text; what is not known stays as it is.

import { h } from '../core/dom.js';
import { toast } from '../state/toasts.js';

/** So much is coloured; the rest of a longer text is shown as it is. */
const COLOURED_MAX = 40_000;

const C_WORDS =
    'break case catch class const continue default do else enum extends false finally for if implements import in interface new null private protected public return static super switch this throw true try void while abstract package int long float double bool boolean char struct typedef unsigned using namespace template virtual override final var string';
const JS_WORDS =
    'as async await break case catch class const continue debugger default delete do else export extends false finally for from function if import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while yield';
const PYTHON_WORDS =
    'and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield';
const SHELL_WORDS =
    'case do done elif else esac export fi for function if in local return then until while cd echo exit set source sudo';
const SQL_WORDS =
    'add alter and as asc begin between by case check commit create default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null on or order outer primary references returning right rollback select set table then union unique update values view when where with';
const GO_WORDS =
    'break case chan const continue default defer else fallthrough false for func go if import interface map nil package range return select struct switch true type var';
const RUST_WORDS =
    'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self static struct super trait true type unsafe use where while';

/** @typedef {{words: Set<string>, signs: RegExp}} Language */

/** @param {string} words @param {string} comment  a pattern @param {string} [flags] @returns {Language} */
const language = (words, comment, flags = '') => ({
    words: new Set(words.split(' ')),
    // Every alternative begins with a sign of its own, and a string that is not closed ends with its line.
    signs: new RegExp(
        `(${comment})|("""[^]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?)|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`,
        `g${flags}`,
    ),
});

const HASH = '#[^\\n]*';
const SLASHES = '//[^\\n]*|/\\*[^]*?(?:\\*/|$)';
const c = language(C_WORDS, SLASHES);
const js = language(JS_WORDS, SLASHES);
const python = language(PYTHON_WORDS, HASH);
const shell = language(SHELL_WORDS, HASH);
const sql = language(SQL_WORDS, '--[^\\n]*|/\\*[^]*?(?:\\*/|$)', 'i');
const data = language('true false null yes no on off', HASH);

/** @type {Map<string, Language>} */
const LANGUAGES = new Map(
    Object.entries({
        ...{ c, cpp: c, 'c++': c, cs: c, csharp: c, java: c, kotlin: c, swift: c, php: c, scala: c },
        ...{ js, javascript: js, jsx: js, ts: js, typescript: js, tsx: js, mjs: js },
        ...{ py: python, python, ruby: python, rb: python },
        ...{ sh: shell, bash: shell, shell, zsh: shell, console: shell, dockerfile: shell, makefile: shell },
        ...{ sql, json: data, jsonc: js, yaml: data, yml: data, toml: data, ini: data },
        ...{ go: language(GO_WORDS, SLASHES), rust: language(RUST_WORDS, SLASHES) },
        rs: language(RUST_WORDS, SLASHES),
    }),
);
const KINDS = ['comment', 'string', 'number'];

/** A box with code in it, and a button that copies it. @param {string} text @param {string} named  its language */
export function codeBox(text, named) {
    const copy = async () => {
        await navigator.clipboard.writeText(text);
        toast('Copied.');
    };
    return h(
        'div',
        { class: 'code-box' },
        h(
            'pre',
            { class: 'code', tabindex: '0', 'aria-label': named ? `code, ${named}` : 'code', role: 'region' },
            h('code', null, coloured(text, named.toLowerCase())),
        ),
        // Without a secure connection a browser lets no page copy.
        navigator.clipboard &&
            h('button', { class: 'quiet copy', type: 'button', 'aria-label': 'copy this code', onclick: copy }, 'copy'),
    );
}

/** @param {string} text @param {string} named @returns {(Node | string)[]} */
export function coloured(text, named) {
    if (named === 'diff' || named === 'patch') return lines(text);
    const known = LANGUAGES.get(named);
    if (!known) return [text];
    /** @type {(Node | string)[]} */
    const made = [];
    let from = 0;
    for (const found of text.slice(0, COLOURED_MAX).matchAll(known.signs)) {
        const [whole, ...kinds] = found;
        const at = kinds.findIndex((each) => each !== undefined);
        const kind = KINDS[at] ?? (known.words.has(named === 'sql' ? whole.toLowerCase() : whole) ? 'word' : '');
        if (!kind) continue;
        made.push(text.slice(from, found.index), h('span', { class: `code-${kind}` }, whole));
        from = found.index + whole.length;
    }
    return [...made, text.slice(from)];
}

/** What a change adds and takes away. @param {string} text */
const lines = (text) =>
    text
        .split(/(?<=\n)/)
        .map((line) =>
            /^[+-]/.test(line) ? h('span', { class: line[0] === '+' ? 'code-string' : 'code-gone' }, line) : line,
        );
