// What the server does: numbers of the process that answers, nodes and leases, and turns that have run for long.

import { h } from '../core/dom.js';
import { may, me, now } from '../state/me.js';
import { failure, nodes, open, quantile, rates, readings, total, watchMetrics } from '../state/metrics.js';
import { sessionAt } from '../state/route.js';
import { ENDS, ago, cost, count, duration, exactClock, shortId } from '../text/format.js';
import { plot } from './plot.js';

const latest = () => readings().at(-1);
const WINDOW = 10;

export function operationsView() {
    watchMetrics(may('metrics'));
    return h(
        'main',
        { class: 'operations', id: 'main', tabindex: '0' },
        h('h1', null, 'Operations'),
        () => failure() && h('p', { class: 'banner bad', role: 'alert' }, failure()),
        () =>
            may('metrics')
                ? [tiles(), plots(), h('div', { class: 'panels' }, ends(), nodeTable())]
                : h(
                      'p',
                      { class: 'banner' },
                      'This key may not see the server’s numbers: it lacks the scope “metrics”.',
                  ),
        openTurns(),
    );
}

/** @param {string} kind @param {string[]} heads @param {any[]} rows @param {(row: any) => any[]} cells  the first one names the row */
const table = (kind, heads, rows, cells) =>
    h(
        'table',
        { class: kind },
        h('thead', null, h('tr', null, heads.map((head) => h('th', { scope: 'col' }, head)))),
        h(
            'tbody',
            null,
            rows.map((row) => {
                const [name, ...others] = cells(row);
                return h('tr', null, h('th', { scope: 'row' }, name), others.map((cell) => h('td', null, cell)));
            }),
        ),
    );

// ── numbers of this moment ───────────────────────────────────────────────────────────────────

function tiles() {
    /** @param {string} name @param {() => string} value @param {string} told */
    const tile = (name, value, told) =>
        h(
            'li',
            { class: 'tile' },
            h('span', { class: 'tile-name' }, name),
            h('strong', null, value),
            h('span', { class: 'told' }, told),
        );
    const gauge = (/** @type {string} */ name) => () => String(total(latest(), name));
    return h(
        'ul',
        { class: 'tiles', 'aria-label': 'at this moment' },
        tile('Running', gauge('holdfast_turns_running'), 'turns, here and now'),
        tile('Waiting', gauge('holdfast_lane_waiting'), 'requests for a busy session'),
        tile('Lanes', gauge('holdfast_lanes'), 'sessions in use here'),
        tile('Watchers', gauge('holdfast_watchers'), 'of running turns'),
        tile('Store queue', gauge('holdfast_store_queue'), 'calls that wait for the store'),
        tile(
            'Lease',
            () => (!latest() ? '–' : total(latest(), 'holdfast_lease_live') ? 'live' : 'lost'),
            'may this node hold sessions?',
        ),
        tile(
            'Tokens',
            () =>
                `${count(total(latest(), 'holdfast_tokens_total', { kind: 'input' }))} → ${count(total(latest(), 'holdfast_tokens_total', { kind: 'output' }))}`,
            'since this process began',
        ),
        tile(
            'Cost',
            () => cost(total(latest(), 'holdfast_cost_total') * 1e6, me()?.currency ?? ''),
            'since this process began',
        ),
    );
}

// ── over time ────────────────────────────────────────────────────────────────────────────────

/** Some number of a histogram over the last readings, each time. @param {string} name @param {number} share */
const sliding = (name, share) =>
    readings().map((now, n, all) => quantile(n ? all[Math.max(0, n - WINDOW)] : undefined, now, name, share));

/** When the curves begin and end. */
const times = () => {
    const all = readings();
    return all.length ? [exactClock(all[0].at), exactClock(all[all.length - 1].at)] : [];
};

function plots() {
    /** @param {string[]} ends */
    const ended = (...ends) =>
        rates(readings(), (each) =>
            ends.reduce((sum, end) => sum + total(each, 'holdfast_turns_total', { ended_by: end }), 0),
        );
    /** @param {string} title @param {string} told @param {string} name */
    const quantiles = (title, told, name) =>
        plot({
            title,
            told,
            times,
            say: duration,
            series: () => [
                { name: 'half within', values: sliding(name, 0.5), tone: 'a' },
                { name: '95 % within', values: sliding(name, 0.95), tone: 'b' },
            ],
        });
    return h(
        'section',
        { class: 'plots', 'aria-label': 'over time' },
        plot({
            title: 'Turns per second',
            told: 'by how they ended',
            times,
            say: (value) => value.toFixed(value < 10 ? 1 : 0),
            series: () => [
                { name: 'completed', values: ended('completed'), tone: 'a' },
                { name: 'stopped', values: ended('cancelled', 'disconnected', 'deleted'), tone: 'b' },
                {
                    name: 'failed',
                    values: ended('model_error', 'tool_error', 'deadline', 'limit', 'crash', 'shutdown', 'superseded'),
                    tone: 'bad',
                },
            ],
        }),
        quantiles('First words', 'from a request to its first words', 'holdfast_first_words_seconds'),
        quantiles('Waits', 'from a request to its begin', 'holdfast_admission_seconds'),
        quantiles('Commits', 'from the last word to the disk', 'holdfast_commit_seconds'),
    );
}

function ends() {
    const all = () =>
        [...(latest()?.samples.get('holdfast_turns_total') ?? [])]
            .filter((each) => each.value > 0)
            .sort((a, b) => b.value - a.value);
    const most = () => Math.max(1, ...all().map((each) => each.value));
    return h(
        'section',
        { class: 'panel' },
        h('h2', null, 'How turns ended'),
        h('p', { class: 'told' }, 'since this process began'),
        () =>
            all().length
                ? table('bars', ['end', 'then', 'turns'], all(), (each) => [
                      ENDS[each.labels.ended_by] ?? each.labels.ended_by,
                      each.labels.fate,
                      h(
                          'span',
                          { class: 'bar-cell' },
                          h('span', {
                              class: `bar fate-${each.labels.fate}`,
                              vars: { share: `${((each.value / most()) * 100).toFixed(1)}%` },
                          }),
                          h('b', null, count(each.value)),
                      ),
                  ])
                : h('p', { class: 'nothing' }, 'No turn has ended here yet.'),
    );
}

// ── who ──────────────────────────────────────────────────────────────────────────────────────

function nodeTable() {
    return h(
        'section',
        { class: 'panel' },
        h('h2', null, 'Nodes and leases'),
        h('p', { class: 'told' }, 'every process on this store, and how long its lease holds without a renewal'),
        () => {
            const found = nodes();
            if (!found) return null;
            return table('', ['node', 'up', 'lease'], found.nodes, (each) => [
                [
                    h('code', { title: each.id }, shortId(each.id)),
                    each.here && [' ', h('span', { class: 'chip' }, 'answers here')],
                ],
                ago(each.since, found.now),
                each.expires_at > found.now
                    ? h('span', { class: 'chip good' }, `${Math.ceil(each.expires_at - found.now)} s`)
                    : h('span', { class: 'chip bad' }, 'expired'),
            ]);
        },
    );
}

function openTurns() {
    const sorted = () => [...open()].sort((a, b) => a.began_at - b.began_at);
    return h(
        'section',
        { class: 'panel' },
        h('h2', null, 'Open turns'),
        h('p', { class: 'told' }, 'the slowest first'),
        () =>
            open().length
                ? table('', ['session', 'agent', 'tool', 'for'], sorted(), (each) => [
                      h(
                          'a',
                          { href: sessionAt(each.session_id, each.id) },
                          each.session_title || each.session_key || shortId(each.session_id),
                      ),
                      each.agent,
                      each.tool ?? '',
                      () => duration(Math.max(0, now() - each.began_at)),
                  ])
                : h('p', { class: 'nothing' }, 'No turn is open.'),
    );
}
