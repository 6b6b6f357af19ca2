// What goes on in all sessions: turns that run, wait for a person, broke off or failed, and what agents have cost.

import * as api from '../api.js';
import { onDispose, signal } from '../core/signals.js';

const EVERY_MS = 3000;
const LISTED = 50;
const DAY_S = 86_400;

/** @typedef {{id: string, session_id: string, session_title: string, session_key: string | null, state: string, ended_by: string | null, detail: string, agent: string, began_at: number, node: string | null, tool: string | null, age_s: number}} ListedTurn */
/** @typedef {{id: string, name: string, arguments: string, agent: string, turn_id: string, session_id: string, session_title: string, session_key: string | null, asked_at: number}} InboxCall */
/** @typedef {{open: ListedTurn[], unfinished: ListedTurn[], failed: ListedTurn[], approvals: InboxCall[], costs: Costs}} Activity */
/** @typedef {{since: number, currency: string, whole: boolean, agents: {agent: string, turns: number, usage: any}[]}} Costs */

/** null until it was read once. @type {import('../core/signals.js').Signal<Activity | null>} */
export const activity = signal(/** @type {Activity | null} */ (null));
export const failure = signal('');

/** @param {string} state @param {string} [more] @returns {Promise<ListedTurn[]>} */
const turns = async (state, more = '') => (await api.get(`/api/turns?state=${state}&limit=${LISTED}${more}`)).turns;

/** Read all of it once. */
export async function look() {
    const since = Math.floor(Date.now() / 1000 - DAY_S);
    const [open, unfinished, failed, inbox, costs] = await Promise.all([
        turns('open'),
        turns('unfinished'),
        turns('failed', `&since=${since}`),
        api.get(`/api/approvals?limit=${LISTED}`),
        api.get('/api/costs'),
    ]);
    activity.set({ open, unfinished, failed, approvals: inbox.approvals, costs });
}

/** Look, as long as the effect that runs now is not disposed. */
export function watchActivity() {
    const again = async () => {
        if (document.hidden) return;
        try {
            await look();
            failure.set('');
        } catch (error) {
            failure.set(error instanceof Error ? error.message : String(error));
        }
    };
    again();
    const timer = setInterval(again, EVERY_MS);
    onDispose(() => clearInterval(timer));
}
