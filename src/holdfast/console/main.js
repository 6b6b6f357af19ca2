// The page: who looks, at what, and which keys do what.

import { reachable } from './api.js';
import { each, h, icon, mount } from './core/dom.js';
import { computed, untracked } from './core/signals.js';
import { asking, enter, me, signOut } from './state/me.js';
import { go, route, sessionAt } from './state/route.js';
import { start } from './state/sessions.js';
import { applyTheme, toggleTheme } from './state/theme.js';
import { dismiss, toasts } from './state/toasts.js';
import { activityView } from './views/activity.js';
import { beginView } from './views/begin.js';
import { help } from './views/dialog.js';
import { mark } from './views/mark.js';
import { operationsView } from './views/operations.js';
import { asModel, sessionView } from './views/session.js';
import { neighbour, sessionsView } from './views/sessions.js';
import { signInView } from './views/signin.js';

applyTheme();
const inside = computed(() => me() !== null);
mount(document.body, () => [
    h(
        'a',
        {
            class: 'skip',
            href: '#main',
            onclick: (/** @type {Event} */ event) => (event.preventDefault(), document.getElementById('main')?.focus()),
        },
        'To the content',
    ),
    () => (inside() ? untracked(shell) : asking() ? h('main', { class: 'door', 'aria-busy': 'true' }) : signInView()),
    h(
        'div',
        { class: 'toasts', role: 'status', 'aria-live': 'polite' },
        each(toasts, (toast) => toast.id, toastView),
    ),
]);
enter();

function shell() {
    start();
    const view = computed(() => route().view);
    const shown = computed(() => JSON.stringify(route()));
    return h(
        'div',
        { class: () => `app view-${view()}` },
        topBar(),
        h(
            'div',
            { class: 'columns' },
            sessionsView(),
            h('div', { class: 'content' }, () => (shown(), untracked(content))),
        ),
    );
}

function content() {
    const { view, name, turn } = route();
    if (view === 'session') return sessionView(name, turn);
    if (view === 'operations') return operationsView();
    if (view === 'new') return beginView();
    return activityView();
}

function topBar() {
    /** @param {string} href @param {string} text @param {() => boolean} here */
    const tab = (href, text, here) => h('a', { href, 'aria-current': () => (here() ? 'page' : null) }, text);
    return h(
        'header',
        { class: 'top' },
        h('a', { class: 'brand', href: '#/', 'aria-label': 'Holdfast' }, mark(), h('span', null, 'Holdfast')),
        h(
            'nav',
            { class: 'tabs', 'aria-label': 'views' },
            tab('#/', 'Sessions', () => !['now', 'operations'].includes(route().view)),
            tab('#/now', 'Now', () => route().view === 'now'),
            tab('#/operations', 'Operations', () => route().view === 'operations'),
        ),
        h('span', { class: 'grow' }),
        () => !reachable() && h('span', { class: 'chip bad', role: 'alert' }, 'no answer from the server'),
        h(
            'a',
            { class: 'button primary', href: '#/new', title: 'new conversation (n)' },
            icon('M10 4v12M4 10h12'),
            h('span', { class: 'wide' }, 'New'),
        ),
        h(
            'button',
            {
                class: 'icon-button',
                type: 'button',
                'aria-label': 'light or dark',
                title: 'light or dark (t)',
                onclick: toggleTheme,
            },
            icon('M10 3a7 7 0 1 0 7 7 5.500 5.500 0 0 1-7-7Z'),
        ),
        h(
            'button',
            { class: 'icon-button keys', type: 'button', 'aria-label': 'keys', title: 'keys (?)', onclick: help },
            '?',
        ),
        () =>
            me()?.key &&
            h(
                'button',
                {
                    class: 'icon-button',
                    type: 'button',
                    'aria-label': `sign out of ${me()?.tenant}`,
                    title: `sign out of ${me()?.tenant}`,
                    onclick: signOut,
                },
                icon('M8 4H4v12h4M12 6l4 4-4 4M16 10H8'),
            ),
    );
}

/** @param {import('./core/signals.js').Signal<import('./state/toasts.js').Toast>} toast */
function toastView(toast) {
    const { id, text, kind, undo, link } = toast();
    return h(
        'div',
        { class: `toast ${kind}` },
        h('span', null, text),
        undo &&
            h(
                'button',
                { class: 'quiet', type: 'button', 'data-undo': '', onclick: () => (dismiss(id), undo()) },
                'Undo',
            ),
        link && h('a', { class: 'quiet', href: link.href, onclick: () => dismiss(id) }, link.text),
        h('button', { class: 'icon-button', type: 'button', 'aria-label': 'dismiss', onclick: () => dismiss(id) }, '×'),
    );
}

// ── keys ─────────────────────────────────────────────────────────────────────────────────────

let went = 0;

/** @type {Record<string, () => void>} */
const KEYS = {
    '?': help,
    '/': () => document.getElementById('search')?.focus(),
    n: () => go('#/new'),
    m: () => asModel.set(!asModel.peek()),
    t: toggleTheme,
    c: () => /** @type {HTMLElement | null} */ (document.querySelector('.composer-text'))?.focus(),
    '.': () => /** @type {HTMLElement | null} */ (document.querySelector('[data-stop]'))?.click(),
    j: () => step(1),
    k: () => step(-1),
    g: () => (went = Date.now()),
};

/** @param {1 | -1} by */
function step(by) {
    const next = neighbour(by);
    if (next) go(sessionAt(next.id));
}

document.addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === 'Escape' && target.matches('input, textarea')) target.blur();
    if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        event.isComposing ||
        target.closest('input, textarea, select, dialog')
    )
        return;
    const second = Date.now() - went < 1000 && { s: () => go('#/'), n: () => go('#/now'), o: () => go('#/operations') }[event.key];
    const run = second || (me.peek() && KEYS[event.key]);
    if (!run) return;
    event.preventDefault();
    run();
});
