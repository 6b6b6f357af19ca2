// Questions before something is done: what it will do, whether it can be undone, and a way out.

import { h } from '../core/dom.js';

/**
 * @param {{title: string, text: string[], action?: string, danger?: boolean, field?: {label: string, value?: string, placeholder?: string}}} question
 * @returns {Promise<string | null>}  what was typed (or an empty text) if it is to be done, null if not
 */
export function ask({ title, text, action = 'OK', danger = false, field }) {
    return new Promise((done) => {
        const input = field
            ? h('input', {
                  class: 'field',
                  id: 'dialog-field',
                  value: field.value ?? '',
                  placeholder: field.placeholder,
                  autocomplete: 'off',
                  onkeydown: enter,
              })
            : null;
        const dialog = h(
            'dialog',
            { class: 'dialog', 'aria-labelledby': 'dialog-title', onclose: () => close(null), onclick: outside },
            h('h2', { id: 'dialog-title' }, title),
            text.map((line) => h('p', null, line)),
            input && h('label', { class: 'label', for: 'dialog-field' }, field?.label),
            input,
            h(
                'div',
                { class: 'dialog-buttons' },
                h('button', { class: 'button', type: 'button', onclick: () => close(null) }, 'Leave it'),
                h(
                    'button',
                    {
                        class: `button ${danger ? 'danger' : 'primary'}`,
                        type: 'button',
                        'data-action': 'confirm',
                        onclick: () => close(input?.value ?? ''),
                    },
                    action,
                ),
            ),
        );
        document.body.append(dialog);
        dialog.showModal();
        (input ?? /** @type {HTMLElement} */ (dialog.querySelector('[data-action]'))).focus();
        input?.select();

        /** @param {string | null} answer */
        function close(answer) {
            dialog.remove();
            done(answer);
        }
        /** @param {KeyboardEvent} event */
        function enter(event) {
            if (event.key === 'Enter' && !event.isComposing) close(input?.value ?? '');
        }
        /** @param {MouseEvent} event */
        function outside(event) {
            if (event.target === dialog) close(null);
        }
    });
}

const KEYS = [
    ['/', 'search'],
    ['j, k', 'next and previous session'],
    ['n', 'new conversation'],
    ['c', 'write a message'],
    ['m', 'what the model sees'],
    ['.', 'stop the running turn'],
    ['g s, g n, g o', 'go to sessions, to what goes on now, to operations'],
    ['t', 'light or dark'],
    ['Esc', 'leave a field or a dialog'],
    ['?', 'this help'],
];

export function help() {
    const dialog = h(
        'dialog',
        {
            class: 'dialog',
            'aria-labelledby': 'help-title',
            onclose: () => dialog.remove(),
            onclick: (/** @type {MouseEvent} */ event) => event.target === dialog && dialog.close(),
        },
        h('h2', { id: 'help-title' }, 'Keys'),
        h(
            'dl',
            { class: 'keys' },
            KEYS.map(([keys, what]) => [
                h(
                    'dt',
                    null,
                    keys
                        .split(', ')
                        .map((key, n) => [n ? ' ' : '', key.split(' ').map((each) => h('kbd', null, each))]),
                ),
                h('dd', null, what),
            ]),
        ),
        h(
            'div',
            { class: 'dialog-buttons' },
            h('button', { class: 'button primary', type: 'button', onclick: () => dialog.close() }, 'Close'),
        ),
    );
    document.body.append(dialog);
    dialog.showModal();
}

/** @typedef {{text: string, hint?: string, danger?: boolean, run: () => void}} Action */

/**
 * A list of things to do, behind a button; made when somebody wants to see it. It opens above everything else, so
 * that nothing cuts it off, and the browser shuts it at a click elsewhere.
 * @param {string} label @param {() => Action[]} actions
 */
export function menu(label, actions) {
    const list = h('div', { class: 'menu-list', popover: 'auto', onbeforetoggle: changed });
    const button = h(
        'button',
        {
            class: 'menu-button',
            type: 'button',
            'aria-label': label,
            title: label,
            'aria-expanded': 'false',
            onclick: () => list.togglePopover(),
        },
        '⋯',
    );
    return h('span', { class: 'menu' }, button, list);

    /** @param {any} event */
    function changed({ newState }) {
        const open = newState === 'open';
        button.setAttribute('aria-expanded', String(open));
        list.replaceChildren(...(open ? actions() : []).map(entry));
        if (open) requestAnimationFrame(place);
    }

    /** Under the button, or above it where there is more room. */
    function place() {
        const at = button.getBoundingClientRect();
        const { width, height } = list.getBoundingClientRect();
        const up = at.bottom + height + 8 > innerHeight && at.top > height;
        list.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
        list.style.top = `${up ? at.top - height - 4 : at.bottom + 4}px`;
    }

    /** @param {Action} action */
    function entry({ text, hint, danger, run }) {
        return h(
            'button',
            {
                type: 'button',
                class: danger ? 'menu-item danger' : 'menu-item',
                onclick: () => (list.hidePopover(), run()),
            },
            h('span', null, text),
            hint && h('small', null, hint),
        );
    }
}
