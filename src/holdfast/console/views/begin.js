// The first message of a conversation: with whom, under which name.

import { h } from '../core/dom.js';
import { computed, signal } from '../core/signals.js';
import { go, sessionAt } from '../state/route.js';
import { say } from '../state/session.js';
import { agents } from '../state/sessions.js';
import { freshId } from '../text/format.js';
import { field } from './composer.js';

export function beginView() {
    const chosen = signal('');
    const name = signal('');
    const agent = computed(() => agents().find((each) => each.id === chosen()) ?? agents()[0]);
    const fallback = `console-${freshId().slice(0, 8)}`;
    return h(
        'main',
        { class: 'begin', id: 'main', tabindex: '-1' },
        h('a', { class: 'back', href: '#/' }, '← all sessions'),
        h('h1', null, 'New conversation'),
        h(
            'div',
            { class: 'begin-fields' },
            h('label', { class: 'label', for: 'begin-agent' }, 'Agent'),
            h('span', null, () =>
                h(
                    'select',
                    {
                        class: 'select',
                        id: 'begin-agent',
                        onchange: (/** @type {Event} */ event) =>
                            chosen.set(/** @type {HTMLSelectElement} */ (event.target).value),
                    },
                    agents().map((each) =>
                        h('option', { value: each.id, selected: each.id === chosen.peek() }, each.id),
                    ),
                ),
            ),
            h('label', { class: 'label', for: 'begin-name' }, 'Key'),
            h('input', {
                class: 'field',
                id: 'begin-name',
                placeholder: fallback,
                autocomplete: 'off',
                spellcheck: 'false',
                autocapitalize: 'none',
                maxlength: '200',
                oninput: (/** @type {Event} */ event) => name.set(/** @type {HTMLInputElement} */ (event.target).value),
            }),
        ),
        h(
            'p',
            { class: 'told' },
            'Any client that sends this key as X-Conversation-Id goes on with the same conversation.',
        ),
        () => agent()?.description && h('p', null, agent().description),
        () => agent()?.welcome_message && h('p', { class: 'welcome' }, agent().welcome_message),
        field({
            label: 'first message',
            placeholder: () => 'Write the first message …',
            send: async (said, once) => {
                const begun = await say(name.peek().trim() || fallback, agent()?.id ?? '', said, 'wait', once);
                go(sessionAt(begun.session));
                return begun;
            },
        }),
    );
}
