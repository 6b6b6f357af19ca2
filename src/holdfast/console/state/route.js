// Where we are, as the address says after `#`.

import { signal } from '../core/signals.js';

/** @typedef {{view: 'sessions' | 'session' | 'now' | 'operations' | 'new', name: string, turn: string}} Route */

export const route = signal(read());

addEventListener('hashchange', () => route.set(read()));

/** @returns {Route} */
function read() {
    const [, view, name = '', turn = ''] = location.hash.split('/').map(decode);
    if (view === 's' && name) return { view: 'session', name, turn };
    if (view === 'now') return { view: 'now', name: '', turn: '' };
    if (view === 'operations') return { view: 'operations', name: '', turn: '' };
    if (view === 'new') return { view: 'new', name: '', turn: '' };
    return { view: 'sessions', name: '', turn: '' };
}

/** @param {string} part */
function decode(part) {
    try {
        return decodeURIComponent(part);
    } catch {
        return '';
    }
}

/** @param {string} name @param {string} [turn] */
export const sessionAt = (name, turn) => `#/s/${encodeURIComponent(name)}${turn ? `/${encodeURIComponent(turn)}` : ''}`;

/** @param {string} hash */
export const go = (hash) => {
    location.hash = hash;
};
