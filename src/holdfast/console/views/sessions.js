// The list of sessions, and what to look for in it.

import { h } from '../core/dom.js';
import { virtualList } from '../core/virtual.js';
import { now } from '../state/me.js';
import { route, sessionAt } from '../state/route.js';
import * as state from '../state/sessions.js';
import { ago } from '../text/format.js';

const ROW = 70;

export function sessionsView() {
    return h(
        'nav',
        { class: 'sidebar', 'aria-label': 'sessions' },
        h(
            'div',
            { class: 'filters' },
            search(),
            h('div', { class: 'filter-row' }, agentFilter(), stateFilter(), timeFilter()),
        ),
        () => state.failed() && h('p', { class: 'banner bad', role: 'alert' }, state.failed()),
        () =>
            state
                .broken()
                .map((each) =>
                    h(
                        'p',
                        { class: 'banner warn' },
                        `${each.source} cannot be loaded${each.serving ? '; an older version of it goes on' : ''}: ${each.problems[0] ?? ''}`,
                    ),
                ),
        () => state.sessions().length === 0 && !state.loading() && empty(),
        virtualList({
            rows: state.sessions,
            key: (row) => row.id,
            height: ROW,
            render: rowView,
            onEnd: state.more,
            props: { class: 'session-list' },
        }),
    );
}

function empty() {
    const plain = JSON.stringify(state.filter()) === JSON.stringify(state.EVERYTHING);
    return h(
        'div',
        { class: 'nothing' },
        plain
            ? [
                  h('p', null, 'No session yet.'),
                  h('p', null, h('a', { class: 'button primary', href: '#/new' }, 'Begin a conversation')),
              ]
            : h('p', null, 'Nothing fits these filters.'),
    );
}

/** @param {Partial<state.Filter>} change */
const set = (change) => state.filter.update((now) => ({ ...now, ...change }));

function search() {
    return h('input', {
        class: 'field search',
        type: 'search',
        id: 'search',
        dir: 'auto',
        placeholder: 'Search what was said  /',
        'aria-label': 'search in titles and messages',
        autocomplete: 'off',
        spellcheck: 'false',
        value: () => state.filter().q,
        oninput: (/** @type {Event} */ event) => set({ q: /** @type {HTMLInputElement} */ (event.target).value }),
        onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && set({ q: '' }),
    });
}

/** @param {string} label @param {[string, string][]} options @param {(value: string) => void} choose @param {() => string} value */
function select(label, options, choose, value) {
    return h(
        'select',
        {
            class: 'select',
            'aria-label': label,
            value,
            onchange: (/** @type {Event} */ event) => choose(/** @type {HTMLSelectElement} */ (event.target).value),
        },
        options.map(([key, text]) => h('option', { value: key }, text)),
    );
}

const agentFilter = () =>
    h('span', { class: 'select-place' }, () =>
        select(
            'agent',
            [
                ['', 'any agent'],
                ...[...new Set(state.agents().map((each) => each.agent))].map(
                    (name) => /** @type {[string, string]} */ ([name, name]),
                ),
            ],
            (agent) => set({ agent }),
            () => state.filter().agent,
        ),
    );

/** What has to be looked at. @type {Record<string, [string, string]>} */
const BADGES = {
    waiting: ['waits', 'asks'],
    unfinished: ['broken off', 'warn'],
    failed: ['failed', 'bad'],
};

const stateFilter = () =>
    select(
        'state',
        [
            ['', 'any state'],
            ['busy', 'running'],
            ['waiting', 'waiting for a person'],
            ['unfinished', 'broken off'],
            ['failed', 'failed lately'],
            ['anonymous', 'unnamed lines'],
        ],
        (value) =>
            set({
                busy: value === 'busy',
                anonymous: value === 'anonymous',
                outcome: value in BADGES ? value : '',
            }),
        () => (state.filter().busy ? 'busy' : state.filter().anonymous ? 'anonymous' : state.filter().outcome),
    );

const timeFilter = () =>
    select(
        'last active',
        [
            ['0', 'any time'],
            ['3600', 'last hour'],
            ['86400', 'last day'],
            ['604800', 'last week'],
        ],
        (value) => set({ within: Number(value) }),
        () => String(state.filter().within),
    );

/** @param {import('../core/signals.js').Signal<state.Session>} row */
function rowView(row) {
    const here = () => route().view === 'session' && (route().name === row().id || row().keys.includes(route().name));
    return h(
        'a',
        {
            class: () => `session-row${here() ? ' here' : ''}${row().open_turn ? ' busy' : ''}`,
            href: () => sessionAt(row().match?.line ?? row().id),
            'aria-current': () => (here() ? 'page' : null),
            'data-session': () => row().id,
        },
        h('span', { class: 'row-title', dir: 'auto' }, () =>
            row().match?.in === 'title' ? excerpt(row()) : row().title || row().keys[0] || 'without a title',
        ),
        h('span', { class: 'row-time' }, () =>
            row().open_turn ? h('span', { class: 'chip live' }, 'running') : [badge(row()), ago(row().active_at, now())],
        ),
        h('span', { class: 'row-facts' }, () => facts(row())),
    );
}

/** @param {state.Session} row */
function badge(row) {
    const [text, tone] = BADGES[row.outcome ?? ''] ?? [];
    return text && [h('span', { class: `chip ${tone}`, 'data-badge': row.outcome }, text), ' '];
}

/** @param {state.Session} row */
function facts(row) {
    if (row.match?.in === 'message') return [row.match.line && 'in another line: ', excerpt(row)];
    return [
        row.forked_from && [h('span', { class: 'chip', title: `forked from ${row.forked_from}` }, 'fork'), ' '],
        row.agent,
        ` · v${row.version}`,
        row.keys.length > 0 && [' · ', h('span', { class: 'row-key' }, row.keys[0])],
    ];
}

/** What was found, with what was looked for marked. @param {state.Session} row */
const excerpt = (row) =>
    row.match.excerpt.map((/** @type {any} */ piece) => (piece.hit ? h('mark', null, piece.text) : piece.text));

/** The session after, or before, the one that is shown. @param {1 | -1} step */
export function neighbour(step) {
    const all = state.sessions.peek();
    const at = all.findIndex((each) => each.id === route.peek().name || each.keys.includes(route.peek().name));
    return all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + step))] ?? null;
}
