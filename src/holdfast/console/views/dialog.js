// Questions before something is done: what it will do, whether it can be undone, and a way out.

import { h } from '../core/dom.js';

/**
 * @param {{title: string, text: string[], action?: string, danger?: boolean, field?: {label: string, value?: string, placeholder?: string}}} question
 * @returns {Promise<string | null>}  what was typed (or an empty text) if it is to be done, null if not
 */
export function ask({ title, text, action = 'OK', danger = false, field }) {
  return new Promise((done) => {
    const input = field ? h('input', { class: 'field', id: 'dialog-field', value: field.value ?? '', placeholder: field.placeholder, autocomplete: 'off', onkeydown: enter }) : null;
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
        h('button', { class: `button ${danger ? 'danger' : 'primary'}`, type: 'button', 'data-action': 'confirm', onclick: () => close(input?.value ?? '') }, action),
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
  ['g s, g o', 'go to sessions, to operations'],
  ['t', 'light or dark'],
  ['Esc', 'leave a field or a dialog'],
  ['?', 'this help'],
];

export function help() {
  const dialog = h(
    'dialog',
    { class: 'dialog', 'aria-labelledby': 'help-title', onclose: () => dialog.remove(), onclick: (/** @type {MouseEvent} */ event) => event.target === dialog && dialog.close() },
    h('h2', { id: 'help-title' }, 'Keys'),
    h('dl', { class: 'keys' }, KEYS.map(([keys, what]) => [h('dt', null, keys.split(', ').map((key, n) => [n ? ' ' : '', key.split(' ').map((each) => h('kbd', null, each))])), h('dd', null, what)])),
    h('div', { class: 'dialog-buttons' }, h('button', { class: 'button primary', type: 'button', onclick: () => dialog.close() }, 'Close')),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** @typedef {{text: string, hint?: string, danger?: boolean, run: () => void}} Action */

/** A list of things to do, behind a button; made when somebody wants to see it. @param {string} label @param {() => Action[]} actions */
export function menu(label, actions) {
  const list = h('div', { class: 'menu-list' });
  const box = h(
    'details',
    { class: 'menu', ontoggle: toggled, onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === 'Escape' && shut(true) },
    h('summary', { class: 'menu-button', 'aria-label': label, title: label }, '⋯'),
    list,
  );
  return box;

  function toggled() {
    const open = box.hasAttribute('open');
    box.toggleAttribute('data-up', open && box.getBoundingClientRect().top > innerHeight * 0.6);
    list.replaceChildren(...(open ? actions() : []).map(button));
  }

  /** @param {Action} action */
  function button({ text, hint, danger, run }) {
    return h('button', { type: 'button', class: danger ? 'menu-item danger' : 'menu-item', onclick: () => (shut(false), run()) }, h('span', null, text), hint && h('small', null, hint));
  }

  /** @param {boolean} back */
  function shut(back) {
    box.removeAttribute('open');
    if (back) box.querySelector('summary')?.focus();
  }
}

// One menu is open at a time, and a click elsewhere shuts it.
document.addEventListener('click', (event) => {
  for (const box of document.querySelectorAll('details.menu[open]')) if (!box.contains(/** @type {Node} */ (event.target))) box.removeAttribute('open');
});
