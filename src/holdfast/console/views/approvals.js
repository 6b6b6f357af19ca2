// Calls that wait for a person: decided where they stand.

import { change } from '../api.js';
import { h } from '../core/dom.js';
import { signal } from '../core/signals.js';
import { may } from '../state/me.js';
import { attempt } from '../state/toasts.js';
import { freshId } from '../text/format.js';

/** @param {string} turn @param {any[]} calls @param {import('../state/session.js').Opened} session */
export function approvals(turn, calls, session) {
    /** @type {import('../core/signals.js').Signal<Record<string, boolean>>} */
    const decided = signal(/** @type {Record<string, boolean>} */ ({}));
    const remember = signal(false);
    const sent = signal(false);
    const once = freshId();

    /** @param {Record<string, boolean>} answers */
    async function send(answers) {
        sent.set(true);
        const decisions = Object.fromEntries(
            Object.entries(answers).map(([id, approve]) => [
                id,
                { approve, ...(approve && remember.peek() ? { remember: 'session' } : {}) },
            ]),
        );
        const begun = await attempt(() =>
            change('POST', `/api/turns/${turn}/approvals`, { decisions }, { 'idempotency-key': once }),
        );
        if (begun) session.watch(begun.id);
        else sent.set(false);
        await session.look().catch(() => {});
    }

    /** @param {string} id @param {boolean} approve */
    function decide(id, approve) {
        decided.update((all) => ({ ...all, [id]: approve }));
        if (calls.every((call) => call.id in decided.peek())) send(decided.peek());
    }

    return h(
        'section',
        { class: 'approvals', 'aria-label': 'waiting for a decision' },
        h(
            'h4',
            null,
            calls.length === 1 ? 'This call waits for your decision' : `${calls.length} calls wait for your decision`,
        ),
        calls.map((call) =>
            h(
                'div',
                { class: 'approval' },
                h('code', { class: 'call-name' }, call.name),
                h('span', { class: 'call-arguments' }, call.arguments),
                h(
                    'span',
                    { class: 'approval-buttons' },
                    h(
                        'button',
                        {
                            class: 'button',
                            type: 'button',
                            disabled: () => sent() || !may('chat'),
                            'aria-pressed': () => String(decided()[call.id] === false),
                            'data-decide': 'refuse',
                            onclick: () => decide(call.id, false),
                        },
                        'Refuse',
                    ),
                    h(
                        'button',
                        {
                            class: 'button primary',
                            type: 'button',
                            disabled: () => sent() || !may('chat'),
                            'aria-pressed': () => String(decided()[call.id] === true),
                            'data-decide': 'allow',
                            onclick: () => decide(call.id, true),
                        },
                        'Allow',
                    ),
                ),
            ),
        ),
        h(
            'label',
            { class: 'check' },
            h('input', {
                type: 'checkbox',
                onchange: (/** @type {Event} */ event) =>
                    remember.set(/** @type {HTMLInputElement} */ (event.target).checked),
            }),
            ' do not ask about this tool again in this session',
        ),
        h(
            'p',
            { class: 'told' },
            'Deciding begins the next turn: it runs exactly what you allow, and tells the agent about what you do not. Any other message refuses what waits.',
        ),
    );
}
