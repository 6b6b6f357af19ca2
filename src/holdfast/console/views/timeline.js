// What took how long in a turn: model calls and tools, one under the other.

import { each, h } from '../core/dom.js';
import { duration } from '../text/format.js';

/** @typedef {{began: number, spans: (import('../state/journal.js').Span & Record<string, any>)[]}} Timed */

/** @param {() => Timed} turn @param {() => number} now @param {(span: any) => Node} [about]  what else is known of a span */
export function timeline(turn, now, about) {
    const begin = () => turn().began || turn().spans[0]?.from || 0;
    const end = () => Math.max(...turn().spans.map((span) => span.to ?? now()), begin() + 0.05);
    const place = (/** @type {number} */ at) =>
        `${Math.min(100, Math.max(0, ((at - begin()) / (end() - begin())) * 100)).toFixed(2)}%`;
    return h(
        'ol',
        { class: 'timeline', 'aria-label': 'what took how long' },
        each(
            () => turn().spans.map((span, n) => ({ ...span, n })),
            (span) => span.n,
            (span) =>
                h(
                    'li',
                    {
                        class: () => `span span-${span().kind} state-${span().state.replace(/[^a-z_]/g, '-')}`,
                        vars: { depth: () => span().depth },
                    },
                    h('span', { class: 'span-label' }, () => span().label),
                    h(
                        'span',
                        { class: 'span-track' },
                        h('span', {
                            class: 'span-bar',
                            vars: { left: () => place(span().from), right: () => place(span().to ?? now()) },
                        }),
                    ),
                    h('span', { class: 'span-time' }, () =>
                        span().kind === 'note' ? '' : duration((span().to ?? now()) - span().from),
                    ),
                    h('span', { class: 'span-state' }, () =>
                        span().state === 'done' || span().state === 'ok' ? '' : span().state.replace('_', ' '),
                    ),
                    about?.(span()),
                ),
        ),
    );
}
