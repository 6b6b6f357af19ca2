// A session's line: its versions in order, what it came from, what leaves it, and where a turn was tried in vain.

import { h, s } from '../core/dom.js';
import { computed, onDispose, signal } from '../core/signals.js';
import { sessionAt } from '../state/route.js';
import { shortId } from '../text/format.js';

const LANE = 24;
const PAD = 14;
const LANES_MAX = 5;

/** @param {import('../state/session.js').Opened} session @param {(turn: string) => void} show */
export function graph(session, show) {
    const width = signal(600);
    const watched = new ResizeObserver((entries) => width.set(Math.max(240, Math.round(entries[0].contentRect.width))));
    const place = h('div', { class: 'graph' }, () => {
        const line = session.line();
        const version = session.info()?.version ?? 0;
        return line && draw(line, version, width(), discarded(), committed(), show);
    });
    watched.observe(place);
    onDispose(() => watched.disconnect());
    const discarded = computed(() => session.pages().filter((each) => each.turn.state === 'discarded'));
    const committed = computed(
        () =>
            new Map(
                session
                    .pages()
                    .filter((each) => each.turn.version !== null)
                    .map((each) => [each.turn.version, each.turn.id]),
            ),
    );
    return place;
}

/** @param {any} line @param {number} version @param {number} width @param {any[]} discarded @param {Map<number, string>} turns @param {(turn: string) => void} show */
function draw(line, version, width, discarded, turns, show) {
    const forks = line.forks.slice(-LANES_MAX);
    const base = PAD + forks.length * LANE;
    const height = base + PAD + (discarded.length ? 10 : 0);
    const span = Math.max(1, version);
    const x = (/** @type {number} */ at) => PAD + (at / span) * (width - 2 * PAD - (forks.length ? 90 : 0));
    const from = line.past.at(-1)?.at ?? 0;
    const step = Math.max(1, Math.ceil(span / Math.floor(width / 12)));
    const dots = Array.from({ length: Math.floor(version / step) + 1 }, (_, n) => n * step);
    if (dots.at(-1) !== version) dots.push(version);
    const told =
        `version ${version}` +
        (line.past.length ? `, forked at version ${from}` : '') +
        (line.forks.length ? `, ${line.forks.length} forks` : '');
    return s(
        'svg',
        {
            class: 'line-graph',
            viewBox: `0 0 ${width} ${height}`,
            width,
            height,
            role: 'group',
            'aria-label': `the line of this session: ${told}`,
        },
        from > 0 && s('path', { class: 'line past', d: `M${x(0)} ${base}H${x(from)}` }),
        s('path', { class: 'line', d: `M${x(from)} ${base}H${x(version)}` }),
        forks.map((/** @type {any} */ fork, /** @type {number} */ n) =>
            branch(fork, x(fork.at), base, base - (n + 1) * LANE, width),
        ),
        discarded.map((/** @type {any} */ each) =>
            s(
                'path',
                { class: 'tried', d: cross(Math.min(width - 4, x(each.turn.base) + 6), base + 10) },
                s('title', null, `tried at version ${each.turn.base} and discarded`),
            ),
        ),
        dots.map((at) =>
            dot(at, x(at), base, at === version, at < from || (at === from && from > 0), turns.get(at), show),
        ),
    );
}

/** @param {number} at @param {number} cx @param {number} cy @param {boolean} head @param {boolean} past @param {string | undefined} turn @param {(turn: string) => void} show */
function dot(at, cx, cy, head, past, turn, show) {
    return s(
        'circle',
        {
            class: `dot${head ? ' head' : ''}${past ? ' past' : ''}${at === 0 ? ' origin' : ''}`,
            cx,
            cy,
            r: head ? 5.5 : at === 0 ? 3 : 3.5,
            ...(turn ? { onclick: () => show(turn) } : {}),
        },
        s('title', null, at === 0 ? 'the beginning' : `version ${at}`),
    );
}

/** @param {any} fork @param {number} from @param {number} base @param {number} y @param {number} width */
function branch(fork, from, base, y, width) {
    const to = Math.min(from + 18, width - 100);
    const name = fork.keys[0] ?? (fork.title || shortId(fork.id));
    return s(
        'a',
        { href: sessionAt(fork.id), class: 'fork', 'aria-label': `fork at version ${fork.at}: ${name}` },
        s('path', { class: 'line fork-line', d: `M${from} ${base}C${from + 4} ${y} ${from + 4} ${y} ${to} ${y}` }),
        s('circle', { class: 'dot', cx: to, cy: y, r: 3.5 }),
        s('text', { x: to + 8, y: y + 4 }, name.length > 22 ? `${name.slice(0, 21)}…` : name),
    );
}

/** @param {number} x @param {number} y */
const cross = (x, y) => `M${x - 3} ${y - 3}l6 6m0-6l-6 6`;
