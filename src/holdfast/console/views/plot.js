// Small plots of numbers over time.

import { h, s } from '../core/dom.js';

const WIDTH = 320;
const HEIGHT = 84;

/** @typedef {{name: string, values: (number | null)[], tone: string}} Series */

/** @param {{title: string, told: string, series: () => Series[], times: () => string[], say: (value: number) => string}} options */
export function plot({ title, told, series, times, say }) {
    return h(
        'figure',
        { class: 'plot' },
        h(
            'figcaption',
            null,
            h('strong', null, title),
            h('span', { class: 'told' }, told),
            h('span', { class: 'plot-most', 'aria-hidden': 'true' }, () => say(highest(series()))),
        ),
        () => picture(title, series(), say),
        h('p', { class: 'plot-times' }, () => times().map((each) => h('span', null, each))),
        h('p', { class: 'legend' }, () =>
            series().map(({ name, values, tone }) => {
                const last = values.findLast((value) => value !== null);
                return h(
                    'span',
                    { class: `tone-${tone}` },
                    h('i', { 'aria-hidden': 'true' }),
                    `${name} `,
                    h('b', null, last === undefined || last === null ? '–' : say(last)),
                );
            }),
        ),
    );
}

/** @param {string} title @param {Series[]} all @param {(value: number) => string} say */
function picture(title, all, say) {
    const most = highest(all);
    const long = Math.max(2, ...all.map((each) => each.values.length));
    const x = (/** @type {number} */ n) => ((n / (long - 1)) * WIDTH).toFixed(1);
    const y = (/** @type {number} */ value) => (HEIGHT - 4 - (value / (most || 1)) * (HEIGHT - 16)).toFixed(1);
    return s(
        'svg',
        {
            class: 'plot-picture',
            viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
            preserveAspectRatio: 'none',
            role: 'img',
            'aria-label': `${title}: at most ${say(most)}`,
        },
        [0.25, 0.5, 0.75, 1].map((share) => s('path', { class: 'grid', d: `M0 ${y(most * share)}H${WIDTH}` })),
        all.map(({ values, tone }) => s('path', { class: `curve tone-${tone}`, d: curve(values, x, y) })),
    );
}

/** @param {Series[]} all */
const highest = (all) => Math.max(0, ...all.flatMap((each) => each.values.map((value) => value ?? 0)));

/** A line with gaps where there is no number, and a dot where one stands alone. @param {(number | null)[]} values @param {(n: number) => string} x @param {(value: number) => string} y */
function curve(values, x, y) {
    let pen = 'M';
    let d = '';
    values.forEach((value, n) => {
        if (value === null) {
            pen = 'M';
            return;
        }
        d += pen === 'M' ? `M${x(n)} ${y(value)}h0` : `L${x(n)} ${y(value)}`;
        pen = 'L';
    });
    return d || 'M0 0';
}
