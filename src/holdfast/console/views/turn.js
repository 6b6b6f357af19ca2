// One turn of a history: what it brought, how it ended, and what can be done from here.

import * as api from '../api.js';
import { h, icon } from '../core/dom.js';
import { computed, signal } from '../core/signals.js';
import { advance, nothingYet } from '../state/journal.js';
import { may, me, now } from '../state/me.js';
import { resendable } from '../state/session.js';
import { attempt, toast } from '../state/toasts.js';
import { ENDS, clock, cost, count, duration, freshId, moment, plural } from '../text/format.js';
import { approvals } from './approvals.js';
import { bodyView } from './body.js';
import { around } from './items.js';
import { timeline } from './timeline.js';
import { traceOf, traceView } from './trace.js';

/** @typedef {import('../core/signals.js').Signal<import('../state/session.js').Page>} PageSignal */
/** @typedef {import('../state/session.js').Opened} Opened */

/** @param {PageSignal} page @param {Opened} session @param {() => boolean} asModel @param {import('./actions.js').Actions} actions */
export function turnView(page, session, asModel, actions) {
    const id = page().turn.id;
    const state = computed(() => page().turn.state);
    return h(
        'article',
        { class: () => `turn turn-${state()}`, id, 'data-turn': id, 'aria-label': () => title(page().turn) },
        h(
            'div',
            { class: 'gutter', 'aria-hidden': 'true' },
            h('span', { class: 'version' }, () => sign(page().turn)),
        ),
        h('div', { class: 'turn-main' }, () =>
            state() === 'open'
                ? liveTurn(session, id)
                : state() === 'queued'
                  ? h('span', { class: 'chip' }, 'queued: it begins when the conversation is free')
                  : state() === 'discarded'
                    ? discardedTurn(page, session)
                    : committedTurn(page, session, asModel, actions),
        ),
    );
}

/** @param {any} turn */
const title = (turn) => (turn.state === 'committed' ? `turn, version ${turn.version}` : `turn, ${turn.state}`);
/** @param {any} turn */
const sign = (turn) => (turn.version !== null ? String(turn.version) : turn.state === 'open' ? '●' : turn.state === 'queued' ? '…' : '×');

// ── committed ────────────────────────────────────────────────────────────────────────────────

/** @param {PageSignal} page @param {Opened} session @param {() => boolean} asModel @param {import('./actions.js').Actions} actions */
function committedTurn(page, session, asModel, actions) {
    const waiting = computed(() => new Set(/** @type {string[]} */ (session.annotations()?.waiting ?? [])));
    const decided = computed(
        () =>
            new Map(
                (session.annotations()?.flags ?? [])
                    .filter((/** @type {any} */ flag) => flag.name === 'approvals.decided')
                    .map((/** @type {any} */ flag) => [flag.item, flag.value]),
            ),
    );
    const earlier = computed(() => callsBefore(page(), session.pages));
    const body = computed(() => {
        const { items, unseen, hidden } = page();
        const out = new Set(asModel() ? unseen : hidden);
        return {
            items: items.filter((each) => !out.has(each.id)),
            left: items.filter((each) => out.has(each.id)),
            unseen: new Set(unseen),
            hidden: new Set(hidden),
            waiting: waiting(),
            decided: decided(),
            earlier: earlier(),
        };
    });
    const shown = signal(false);
    return [
        () => {
            const { left } = body();
            if (!left.length) return null;
            const told = asModel()
                ? `${plural(left.length, 'item')} the model does not see`
                : `${plural(left.length, 'hidden item')}`;
            return h(
                'button',
                {
                    class: 'left-out',
                    type: 'button',
                    'aria-expanded': () => String(shown()),
                    onclick: () => shown.set(!shown.peek()),
                },
                () => `${shown() ? '▾' : '▸'} ${told}`,
            );
        },
        bodyView(
            () => (shown() ? { ...body(), items: page().items } : body()),
            (item) => actions.itemTools(item, page.peek()),
        ),
        () => {
            const asked = page().items.filter(
                (each) => each.type === 'call' && each.waits_for === 'approval' && waiting().has(each.id),
            );
            return asked.length && !session.info()?.open_turn ? approvals(page().turn.id, asked, session) : null;
        },
        () => {
            const { turn } = page();
            const info = session.info();
            const isLast = turn.version === info?.version && !info?.open_turn;
            return turn.ended_by !== 'completed' && isLast && may('chat') ? continueButton(session, turn.id) : null;
        },
        h(
            'footer',
            { class: 'turn-foot' },
            () => facts(page().turn),
            traceOf(page.peek().turn.id),
            () => actions.turnMenu(page()),
        ),
    ];
}

/** The calls of other turns whose results are in this one. @param {any} page @param {() => any[]} pages */
function callsBefore({ items }, pages) {
    const { calls, results } = around(items);
    const wanted = new Set([...results.keys()].filter((call) => !calls.has(call)));
    const others = wanted.size ? pages().flatMap((each) => each.items) : [];
    return new Map(others.filter((each) => each.type === 'call' && wanted.has(each.id)).map((each) => [each.id, each]));
}

/** @param {Opened} session @param {string} id  of a turn that broke off, and is the last one */
function continueButton(session, id) {
    const asking = signal(false);
    async function goOn() {
        asking.set(true);
        const begun = await attempt(() => api.change('POST', `/api/turns/${id}/continue`, {}));
        asking.set(false);
        if (begun) toast('It goes on from where it broke off.');
        await session.look().catch(() => {});
    }
    return h(
        'p',
        { class: 'row' },
        h(
            'button',
            { class: 'button', type: 'button', 'data-continue': '', disabled: () => asking(), onclick: goOn },
            icon('M5 4l10 6-10 6z'),
            'Continue',
        ),
        h('small', { class: 'told' }, 'Goes on from where it broke off. No message and no call is repeated.'),
    );
}

/** What a turn cost, and how it ended. @param {any} turn */
function facts(turn) {
    const { usage } = turn;
    const said = [
        turn.ended_by !== 'completed' && h('span', { class: 'chip warn' }, ENDS[turn.ended_by] ?? turn.ended_by),
        turn.attempt > 1 && h('span', { class: 'chip' }, `attempt ${turn.attempt}`),
        turn.agent && h('span', null, turn.agent),
        turn.ended_at && h('span', { title: 'how long it took' }, duration(turn.ended_at - turn.began_at)),
        (usage.input_tokens || usage.output_tokens) > 0 &&
            h(
                'span',
                {
                    title: `tokens in and out${usage.cached_tokens ? `, ${usage.cached_tokens} of them from the cache` : ''}${usage.estimated_tokens ? `; ${usage.estimated_tokens} of them are an estimate` : ''}`,
                },
                `${usage.estimated_tokens ? '~' : ''}${count(usage.input_tokens ?? 0)} → ${count(usage.output_tokens ?? 0)} tokens`,
            ),
        usage.cost_micros > 0 &&
            h('span', { title: 'cost, by the price lists of the models' }, cost(usage.cost_micros, me()?.currency ?? '')),
        h('time', { title: moment(turn.began_at) }, clock(turn.began_at)),
    ];
    return said.filter(Boolean).map((each) => [each, ' ']);
}

// ── discarded ────────────────────────────────────────────────────────────────────────────────

/** @param {PageSignal} page @param {Opened} session */
function discardedTurn(page, session) {
    const { turn } = page();
    const opened = signal(false);
    return h(
        'details',
        {
            class: 'discarded',
            ontoggle: (/** @type {Event} */ event) => opened.set(/** @type {HTMLDetailsElement} */ (event.target).open),
        },
        h(
            'summary',
            null,
            h('span', { class: 'chip bad' }, 'discarded'),
            h(
                'span',
                { class: 'discarded-why' },
                `${ENDS[turn.ended_by] ?? turn.ended_by}${turn.detail ? `: ${turn.detail}` : ''}`,
            ),
            h('time', { title: moment(turn.began_at) }, clock(turn.began_at)),
        ),
        h(
            'p',
            { class: 'told' },
            `It was tried at version ${turn.base} and left no trace in the conversation. This is what happened meanwhile; it is kept for a week.`,
        ),
        () => opened() && journal(turn.id, session),
    );
}

/** A journal, read to its end. @param {string} id @param {Opened} session */
function journal(id, session) {
    const turn = signal(nothingYet(id));
    const failed = signal('');
    const stop = new AbortController();
    (async () => {
        const records = [];
        for await (const record of api.events(`/api/turns/${id}/events`, stop.signal)) records.push(record);
        turn.set(advance(turn.peek(), records));
    })().catch((error) => failed.set(String(error.message ?? error)));
    return [
        () => failed() && h('p', { class: 'banner bad' }, failed()),
        () => turn().ended && !turn().request && h('p', { class: 'told' }, 'Its journal is not kept any more.'),
        () => turn().request && bodyView(() => ({ items: turn().items, earlier: callsBefore(turn(), session.pages) })),
        () => turn().request && traceView(id),
        () => turn().request && may('chat') && retryButton(session, turn().request.input),
    ];
}

/** @param {Opened} session @param {any[]} input */
function retryButton(session, input) {
    const again = resendable(input);
    const once = freshId();
    return h(
        'p',
        { class: 'row' },
        h(
            'button',
            {
                class: 'button',
                type: 'button',
                disabled: !again,
                onclick: () =>
                    again &&
                    attempt(() => session.say(again, 'wait', once)).then(
                        (begun) => begun && toast('Sent again, as a new turn on top of the latest version.'),
                    ),
            },
            icon('M4 10a6 6 0 1 1 2 4.500M4 10V5m0 5h5'),
            'Try it again',
        ),
        h(
            'small',
            { class: 'told' },
            again
                ? 'Sends the same message once more, to the conversation as it is now.'
                : 'It brought something that cannot be sent from here again.',
        ),
    );
}

// ── open ─────────────────────────────────────────────────────────────────────────────────────

/** @param {Opened} session @param {string} id */
export function liveTurn(session, id) {
    const turn = computed(() => {
        const playing = session.live();
        return playing?.id === id ? playing : nothingYet(id);
    });
    return [
        bodyView(() => {
            const { items, drafts, running } = turn();
            return { items, drafts, running, earlier: callsBefore(turn(), session.pages) };
        }),
        () => turn().items.length === 0 && h('p', { class: 'told' }, 'It is open; waiting for word of it …'),
        h(
            'footer',
            { class: 'turn-foot live-foot' },
            h('span', { class: 'chip live' }, () => (turn().ended ? 'ending' : 'running')),
            h('span', null, () => (turn().began ? duration(Math.max(0, now() - turn().began)) : '')),
            () => turn().attempt > 1 && h('span', { class: 'chip' }, `attempt ${turn().attempt}`),
            () =>
                turn().acted &&
                h('span', { class: 'chip warn', title: 'a tool that is not read-only has started' }, 'has acted'),
        ),
        () => turn().spans.length > 0 && timeline(turn, now),
    ];
}
