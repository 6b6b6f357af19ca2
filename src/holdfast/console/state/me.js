// Who looks: what the key of this tab may, and a clock for everybody.

import * as api from '../api.js';
import { signal } from '../core/signals.js';

/** @type {import('../core/signals.js').Signal<{tenant: string, key: string | null, scopes: string[], currency: string} | null>} */
export const me = signal(null);
/** Why we are not in; empty while nobody has tried. */
export const refused = signal('');
export const asking = signal(true);

/** Once a second, for whatever says how long ago something was. */
export const now = signal(Date.now() / 1000);
setInterval(() => now.set(Date.now() / 1000), 1000);

/** @param {'chat' | 'read' | 'admin' | 'metrics'} scope */
export function may(scope) {
    const scopes = me()?.scopes ?? [];
    return scopes.includes(scope) || scopes.includes('admin');
}

/** Ask who we are, with the key that this tab has. */
export async function enter() {
    asking.set(true);
    try {
        me.set(await api.get('/api/me'));
        refused.set('');
    } catch (error) {
        me.set(null);
        refused.set(why(error));
    }
    asking.set(false);
}

/** @param {unknown} error */
function why(error) {
    if (!(error instanceof api.ApiError)) return String(error);
    if (error.status === 401) return api.keptKey() ? 'This key is not known here, or no longer good.' : '';
    if (error.status === 403) return 'This key may not look at sessions: it needs the scope “read”.';
    return error.message;
}

/** @param {string} key */
export async function signIn(key) {
    api.keepKey(key.trim());
    await enter();
    if (!me.peek()) api.keepKey('');
}

export function signOut() {
    api.keepKey('');
    location.hash = '';
    location.reload();
}
