// Short messages that go by themselves, with a way back where there is one.

import { signal } from '../core/signals.js';

/** @typedef {{id: number, text: string, kind: 'ok' | 'bad', undo: (() => void) | null, link: {href: string, text: string} | null}} Toast */

/** @type {import('../core/signals.js').Signal<Toast[]>} */
export const toasts = signal(/** @type {Toast[]} */ ([]));
let last = 0;

/** @param {string} text @param {{kind?: 'ok' | 'bad', undo?: () => void, link?: {href: string, text: string}}} [more] */
export function toast(text, { kind = 'ok', undo, link } = {}) {
    const id = ++last;
    toasts.update((all) => [...all.slice(-3), { id, text, kind, undo: undo ?? null, link: link ?? null }]);
    setTimeout(() => dismiss(id), undo || link ? 12_000 : kind === 'bad' ? 9_000 : 5_000);
}

/** @param {number} id */
export const dismiss = (id) => toasts.update((all) => all.filter((each) => each.id !== id));

/** Do something, and say what went wrong if it did. @template T @param {() => Promise<T>} work @returns {Promise<T | undefined>} */
export async function attempt(work) {
    try {
        return await work();
    } catch (error) {
        toast(error instanceof Error ? error.message : String(error), { kind: 'bad' });
        return undefined;
    }
}
