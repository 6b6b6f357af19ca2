// Light or dark: as the system has it, until somebody says otherwise.

import { signal } from '../core/signals.js';

const KEY = 'holdfast.theme';

/** @typedef {'light' | 'dark' | 'auto'} Theme */

export const theme = signal(/** @type {Theme} */ (localStorage.getItem(KEY) ?? 'auto'));

export function applyTheme() {
    document.documentElement.dataset.theme = theme.peek();
}

export function toggleTheme() {
    const dark =
        theme.peek() === 'dark' || (theme.peek() === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
    theme.set(dark ? 'light' : 'dark');
    localStorage.setItem(KEY, theme.peek());
    applyTheme();
}
