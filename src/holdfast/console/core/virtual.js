// A long list of rows that are equally high, of which only those near the window are in the document.

import { each, h } from './dom.js';
import { computed, effect, onDispose, signal } from './signals.js';

const MARGIN = 6;

/**
 * @template T
 * @param {object} options
 * @param {() => T[]} options.rows
 * @param {(row: T) => string} options.key
 * @param {number} options.height  of one row, in pixels
 * @param {(row: import('./signals.js').Signal<T>) => Node} options.render
 * @param {() => void} options.onEnd  called when the end comes near
 * @param {Record<string, any>} [options.props]
 */
export function virtualList({ rows, key, height, render, onEnd, props }) {
    const top = signal(0);
    const room = signal(800);
    const scroller = h('div', { ...props, onscroll: () => top.set(scroller.scrollTop) });
    const resized = new ResizeObserver(() => room.set(scroller.clientHeight || 800));
    resized.observe(scroller);
    onDispose(() => resized.disconnect());

    const first = computed(() => Math.max(0, Math.floor(top() / height) - MARGIN));
    const last = computed(() => Math.min(rows().length, Math.ceil((top() + room()) / height) + MARGIN));
    const near = computed(() =>
        rows()
            .slice(first(), last())
            .map((row, n) => ({ row, at: first() + n })),
    );
    effect(() => {
        if (last() >= rows().length - MARGIN) onEnd();
    });

    scroller.append(
        h(
            'div',
            { class: 'virtual', role: 'list', vars: { 'virtual-height': () => `${rows().length * height}px` } },
            each(
                near,
                (entry) => key(entry.row),
                (entry) => {
                    const row = signal(entry().row);
                    effect(() => row.set(entry().row));
                    return h(
                        'div',
                        {
                            class: 'virtual-row',
                            role: 'listitem',
                            'aria-setsize': () => rows().length,
                            'aria-posinset': () => entry().at + 1,
                            vars: { 'row-top': () => `${entry().at * height}px`, 'row-height': `${height}px` },
                        },
                        render(row),
                    );
                },
            ),
        ),
    );
    return scroller;
}
