// The door: a key, which this tab keeps until it is closed.

import { h } from '../core/dom.js';
import { signal } from '../core/signals.js';
import { asking, refused, signIn } from '../state/me.js';
import { mark } from './mark.js';

export function signInView() {
    const key = signal('');
    const enter = () => key.peek().trim() && signIn(key.peek());
    return h(
        'main',
        { class: 'door', id: 'main' },
        h(
            'div',
            { class: 'door-card' },
            h('div', { class: 'door-mark' }, mark(), h('h1', null, 'Holdfast')),
            h('label', { class: 'label', for: 'key' }, 'API key'),
            h('input', {
                class: 'field',
                id: 'key',
                type: 'password',
                placeholder: 'hf_…',
                autocomplete: 'off',
                spellcheck: 'false',
                oninput: (/** @type {Event} */ event) => key.set(/** @type {HTMLInputElement} */ (event.target).value),
                onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === 'Enter' && enter(),
            }),
            () => refused() && h('p', { class: 'banner bad', role: 'alert' }, refused()),
            h(
                'button',
                {
                    class: 'button primary wide-button',
                    type: 'button',
                    disabled: () => asking() || !key().trim(),
                    onclick: enter,
                },
                'Sign in',
            ),
            h(
                'p',
                { class: 'told' },
                'It needs the scope ',
                h('code', null, 'read'),
                '; with ',
                h('code', null, 'chat'),
                ' it may write, with ',
                h('code', null, 'admin'),
                ' delete and export, with ',
                h('code', null, 'metrics'),
                ' see the server’s numbers. Only this tab keeps it, and only until it is closed.',
            ),
            h(
                'p',
                { class: 'told' },
                'Whoever runs the server makes keys with ',
                h('code', null, 'holdfast keys create'),
                '.',
            ),
        ),
    );
}
