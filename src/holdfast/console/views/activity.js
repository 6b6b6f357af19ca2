// The start page: what runs, what waits for a person, what broke off, what failed in the last day, and what it cost.

import * as api from '../api.js';
import { h } from '../core/dom.js';
import { signal } from '../core/signals.js';
import { activity, failure, look, watchActivity } from '../state/activity.js';
import { may, now } from '../state/me.js';
import { sessionAt } from '../state/route.js';
import { attempt } from '../state/toasts.js';
import { ENDS, ago, clock, cost, count, duration, freshId, plural, shortId } from '../text/format.js';

/** @typedef {import('../state/activity.js').ListedTurn} ListedTurn */
/** @typedef {import('../state/activity.js').InboxCall} InboxCall */
/** @typedef {import('../state/activity.js').Activity} Activity */

export function activityView() {
    watchActivity();
    return h(
        'main',
        { class: 'operations activity', id: 'main', tabindex: '-1' },
        h('h1', null, 'Now'),
        () => failure() && h('p', { class: 'banner bad', role: 'alert' }, failure()),
        () => {
            const found = activity();
            return found ? panels(found) : h('p', { class: 'told', 'aria-busy': 'true' }, 'Looking …');
        },
    );
}

/** @param {Activity} found */
function panels(found) {
    return [
        panel('waiting', 'Waiting for a person', found.approvals, 'No call waits for a decision.', waitingCall),
        panel('open', 'Running', found.open, 'No turn is open.', openTurn),
        panel('unfinished', 'Broken off', found.unfinished, 'No turn has broken off.', unfinishedTurn),
        panel('failed', 'Failed in the last day', failedOnly(found), 'No turn has failed.', failedTurn),
        panel('costs', `Cost of today by agent, ${since(found.costs)}`, found.costs.agents, 'No turn has ended today.', (each) =>
            h(
                'div',
                { class: 'activity-head' },
                h('span', { class: 'activity-what' }, each.agent),
                h(
                    'span',
                    { class: 'told activity-agent' },
                    `${plural(each.turns, 'turn')}, ${count(each.usage.input_tokens)} → ${count(each.usage.output_tokens)} tokens`,
                ),
                each.usage.cost_micros
                    ? h('strong', { class: 'activity-time' }, cost(each.usage.cost_micros, found.costs.currency))
                    : h('span', { class: 'told activity-time' }, 'no price'),
            ),
        ),
    ];
}

/** What failed and cannot be continued: the rest is listed as broken off. @param {Activity} found */
function failedOnly({ failed, unfinished }) {
    const brokenOff = new Set(unfinished.map((each) => each.id));
    return failed.filter((each) => !brokenOff.has(each.id));
}

/** Where the day begins; it may have been too long a day to read. @param {import('../state/activity.js').Costs} costs */
const since = ({ since: at, whole }) => `since 00:00 UTC (${clock(at)} here)${whole ? '' : ', of the last turns only'}`;

/**
 * @template T
 * @param {string} name @param {string} title @param {T[]} rows @param {string} nothing @param {(row: T) => any} row
 */
function panel(name, title, rows, nothing, row) {
    return h(
        'section',
        { class: 'panel', 'data-panel': name },
        h('h2', null, title, rows.length > 0 && [' ', h('span', { class: 'chip' }, String(rows.length))]),
        rows.length
            ? h(
                  'ul',
                  { class: 'activity-rows' },
                  rows.map((each) => h('li', null, row(each))),
              )
            : h('p', { class: 'nothing' }, nothing),
    );
}

/**
 * A row: the conversation by the name that people know, its agent, when, and what can be done; below, what it is about.
 * @param {ListedTurn | InboxCall} of @param {string} turn @param {number} at @param {any} about @param {any} [actions]
 */
const row = (of, turn, at, about, actions) => [
    h(
        'div',
        { class: 'activity-head' },
        h(
            'a',
            { class: 'activity-what', dir: 'auto', href: sessionAt(of.session_id, turn), title: turn },
            of.session_title || of.session_key || shortId(of.session_id),
        ),
        h('span', { class: 'told activity-agent' }, of.agent),
        h('span', { class: 'told activity-time' }, () => ago(at, now())),
        actions && h('span', { class: 'activity-actions' }, actions),
    ),
    about,
];

/** @param {string} text */
const told = (text) => text && h('p', { class: 'told activity-about', title: text }, text);

/** @param {ListedTurn} turn */
const openTurn = (turn) =>
    row(
        turn,
        turn.id,
        turn.began_at,
        told(
            [turn.tool ?? turn.state, `for ${duration(turn.age_s)}`, turn.node && `on ${shortId(turn.node)}`]
                .filter(Boolean)
                .join(', '),
        ),
        may('chat') && button('Stop', () => api.change('POST', `/api/turns/${turn.id}/cancel`, {})),
    );

/** @param {ListedTurn} turn */
const unfinishedTurn = (turn) =>
    row(
        turn,
        turn.id,
        turn.began_at,
        told(why(turn)),
        may('chat') && button('Continue', () => api.change('POST', `/api/turns/${turn.id}/continue`, {})),
    );

/** @param {ListedTurn} turn */
const failedTurn = (turn) => row(turn, turn.id, turn.began_at, told(why(turn)));

/** @param {ListedTurn} turn */
const why = (turn) => [ENDS[turn.ended_by ?? ''] ?? turn.state, turn.detail].filter(Boolean).join(': ');

/** @param {InboxCall} call */
function waitingCall(call) {
    const once = freshId();
    /** @param {boolean} approve */
    const decide = (approve) =>
        api.change(
            'POST',
            `/api/turns/${call.turn_id}/approvals`,
            { decisions: { [call.id]: { approve } } },
            { 'idempotency-key': once },
        );
    return row(
        call,
        call.turn_id,
        call.asked_at,
        h(
            'pre',
            { class: 'activity-call', tabindex: '0', role: 'region', 'aria-label': `call of ${call.name}` },
            h('strong', null, call.name),
            ` ${call.arguments}`,
        ),
        may('chat') && [button('Refuse', () => decide(false)), button('Allow', () => decide(true), 'primary')],
    );
}

/** @param {string} text @param {() => Promise<unknown>} work @param {string} [kind] */
function button(text, work, kind = '') {
    const sent = signal(false);
    const press = async () => {
        sent.set(true);
        await attempt(work);
        await attempt(look);
        sent.set(false);
    };
    return h('button', { class: `button ${kind}`, type: 'button', disabled: () => sent(), onclick: press }, text);
}
