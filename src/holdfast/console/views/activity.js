// The start page: what runs, what waits for a person, what broke off, what failed in the last day, and what it cost.

import * as api from '../api.js';
import { h } from '../core/dom.js';
import { signal } from '../core/signals.js';
import { activity, failure, look, watchActivity } from '../state/activity.js';
import { may, now } from '../state/me.js';
import { sessionAt } from '../state/route.js';
import { attempt } from '../state/toasts.js';
import { ENDS, ago, duration, money, shortId } from '../text/format.js';

/** @typedef {import('../state/activity.js').ListedTurn} ListedTurn */
/** @typedef {import('../state/activity.js').InboxCall} InboxCall */
/** @typedef {import('../state/activity.js').Activity} Activity */

export function activityView() {
    watchActivity(may('metrics'));
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
        panel('failed', 'Failed in the last day', found.failed, 'No turn has failed.', failedTurn),
        may('metrics') &&
            panel('costs', 'Cost by agent, since this server began', found.costs, 'Nothing has cost anything.', (each) => [
                h('span', { class: 'activity-what' }, each.agent),
                h('strong', null, money(each.cost * 1e6)),
            ]),
    ];
}

/**
 * @template T
 * @param {string} name @param {string} title @param {T[]} rows @param {string} nothing @param {(row: T) => any[]} row
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

/** @param {ListedTurn} turn @param {string} about @param {any} [action] */
const turnRow = (turn, about, action) => [
    h('a', { class: 'activity-what', href: sessionAt(turn.session_id, turn.id) }, turn.agent || shortId(turn.session_id)),
    h('span', { class: 'told activity-about', title: turn.id }, about),
    h('span', { class: 'told' }, () => ago(turn.began_at, now())),
    action,
];

/** @param {ListedTurn} turn */
const openTurn = (turn) =>
    turnRow(
        turn,
        [turn.tool ?? turn.state, `for ${duration(turn.age_s)}`, turn.node && `on ${shortId(turn.node)}`]
            .filter(Boolean)
            .join(', '),
        may('chat') && button('Stop', () => api.change('POST', `/api/turns/${turn.id}/cancel`, {})),
    );

/** @param {ListedTurn} turn */
const unfinishedTurn = (turn) =>
    turnRow(
        turn,
        why(turn),
        may('chat') && button('Continue', () => api.change('POST', `/api/turns/${turn.id}/continue`, {})),
    );

/** @param {ListedTurn} turn */
const failedTurn = (turn) => turnRow(turn, why(turn));

/** @param {ListedTurn} turn */
const why = (turn) => [ENDS[turn.ended_by ?? ''] ?? turn.state, turn.detail].filter(Boolean).join(': ');

/** @param {InboxCall} call */
function waitingCall(call) {
    const once = crypto.randomUUID();
    /** @param {boolean} approve */
    const decide = (approve) =>
        api.change(
            'POST',
            `/api/turns/${call.turn_id}/approvals`,
            { decisions: { [call.id]: { approve } } },
            { 'idempotency-key': once },
        );
    return [
        h('a', { class: 'activity-what', href: sessionAt(call.session_id, call.turn_id) }, call.agent),
        h('code', { class: 'activity-about' }, `${call.name} ${call.arguments}`),
        h('span', { class: 'told' }, () => ago(call.asked_at, now())),
        may('chat') && [button('Approve', () => decide(true)), button('Refuse', () => decide(false))],
    ];
}

/** @param {string} text @param {() => Promise<unknown>} work */
function button(text, work) {
    const sent = signal(false);
    const press = async () => {
        sent.set(true);
        await attempt(work);
        await attempt(() => look(may('metrics')));
        sent.set(false);
    };
    return h('button', { class: 'button', type: 'button', disabled: () => sent(), onclick: press }, text);
}
