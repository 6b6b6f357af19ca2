// Pictures and files that go with a message: chosen, pasted or dropped, within what a request may carry.

import { each, h, icon } from '../core/dom.js';
import { onDispose, signal } from '../core/signals.js';
import { toast } from '../state/toasts.js';
import { freshId, size } from '../text/format.js';

/** A request has at most 4 MB, in which three bytes are four characters. */
const BYTES_MAX = 2_800_000;
const FILES_MAX = 10;
export const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** @typedef {{id: string, name: string, kind: string, bytes: number, data: string, url: string}} Attached */

/** What is attached, and the ways to attach. */
export function attachments() {
    /** @type {import('../core/signals.js').Signal<Attached[]>} */
    const held = signal(/** @type {Attached[]} */ ([]));
    onDispose(() => held.peek().forEach((one) => URL.revokeObjectURL(one.url)));

    /** @param {Iterable<File>} files */
    async function add(files) {
        for (const file of files) {
            const bytes = held.peek().reduce((sum, one) => sum + one.bytes, file.size);
            if (bytes > BYTES_MAX || held.peek().length >= FILES_MAX) {
                toast(`${file.name} is too much: a message carries ${FILES_MAX} files and ${size(BYTES_MAX)} at most.`, { kind: 'bad' });
                continue;
            }
            const one = { name: file.name || 'file', kind: file.type || 'application/octet-stream', bytes: file.size };
            const url = PICTURES.has(one.kind) ? URL.createObjectURL(file) : '';
            const data = await asDataUrl(file);
            held.update((all) => [...all, { ...one, id: freshId(), data, url }]);
        }
    }
    /** @param {Attached} gone */
    function drop(gone) {
        URL.revokeObjectURL(gone.url);
        held.update((all) => all.filter((one) => one.id !== gone.id));
    }
    const input = h('input', {
        type: 'file',
        multiple: true,
        hidden: true,
        'data-attach': '',
        'aria-label': 'files to attach',
        onchange: () => add([...(input.files ?? [])]).then(() => (input.value = '')),
    });
    return {
        held,
        add,
        clear: () => held.peek().forEach(drop),
        button: h(
            'button',
            { class: 'icon-button', type: 'button', 'aria-label': 'attach a picture or a file', title: 'attach', onclick: () => input.click() },
            icon('M14 6l-6 6a2 2 0 0 0 3 3l6-6a4 4 0 0 0-6-6L5 9a6 6 0 0 0 8 8l4-4'),
            input,
        ),
        list: h(
            'div',
            { class: 'attached', hidden: () => held().length === 0 },
            each(held, (one) => one.id, (one) => chip(one(), drop)),
        ),
    };
}

/** @param {Attached} one @param {(gone: Attached) => void} drop */
const chip = (one, drop) =>
    h(
        'span',
        { class: 'attachment' },
        one.url ? h('img', { class: 'thumbnail', src: one.url, alt: '' }) : icon('M5 2h7l4 4v12H5ZM12 2v4h4'),
        h('span', null, one.name),
        h('small', null, size(one.bytes)),
        h('button', { class: 'icon-button', type: 'button', 'aria-label': `leave out ${one.name}`, onclick: () => drop(one) }, '×'),
    );

/** A message as the API takes it. @param {string} text @param {Attached[]} held @returns {string | any[]} */
export function messageOf(text, held) {
    if (!held.length) return text;
    const words = text.trim() ? [{ type: 'input_text', text }] : [];
    const parts = held.map((one) =>
        PICTURES.has(one.kind)
            ? { type: 'input_image', image_url: one.data }
            : { type: 'input_file', filename: one.name, file_data: one.data },
    );
    return [{ role: 'user', content: [...words, ...parts] }];
}

/** @param {File} file @returns {Promise<string>} */
const asDataUrl = (file) =>
    new Promise((done, failed) => {
        const reader = new FileReader();
        reader.onload = () => done(String(reader.result));
        reader.onerror = () => failed(reader.error);
        reader.readAsDataURL(file);
    });
