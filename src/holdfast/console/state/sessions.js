// The list of sessions: what is asked for, what has come, and how it stays fresh.
//
// It is asked for anew every few seconds, from the top, as long as somebody looks: a browser allows six connections
// to a server, and a stream for every window would take them all. What is busy further down is asked for as well.

import * as api from '../api.js';
import { batch, effect, signal } from '../core/signals.js';

/** @typedef {{id: string, keys: string[], title: string, agent: string, version: number, items: number, open_turn: string | null, created_at: number, active_at: number, attributes: Record<string, string>, family: string | null, forked_from?: string | null, outcome?: string, match?: any}} Session */
/** @typedef {{q: string, agent: string, busy: boolean, within: number, anonymous: boolean, outcome: string}} Filter */

const PAGE = 100;
const EVERY_MS = 3000;

/** @type {Filter} */
export const EVERYTHING = { q: '', agent: '', busy: false, within: 0, anonymous: false, outcome: '' };

export const filter = signal(EVERYTHING);
/** @type {import('../core/signals.js').Signal<Session[]>} */
export const sessions = signal(/** @type {Session[]} */ ([]));
export const loading = signal(false);
export const failed = signal('');
export const atEnd = signal(false);
/** @type {import('../core/signals.js').Signal<{id: string, agent: string, description: string, welcome_message: string, commands: any[]}[]>} */
export const agents = signal(/** @type {any[]} */ ([]));
/** @type {import('../core/signals.js').Signal<any[]>} */
export const broken = signal(/** @type {any[]} */ ([]));

let cursor = /** @type {string | null} */ (null);
/** Counts questions, so that an answer that nobody waits for any more is known as one. */
let asked = 0;

/** @param {Filter} what @param {Record<string, string>} more */
function address(what, more) {
    const query = new URLSearchParams({ limit: String(PAGE), ...more });
    if (what.q.trim()) query.set('q', what.q.trim());
    if (what.agent) query.set('agent', what.agent);
    if (what.busy) query.set('busy', 'true');
    if (what.within) query.set('active_from', String(Math.floor(Date.now() / 1000) - what.within));
    if (what.anonymous) query.set('anonymous', 'true');
    if (what.outcome) query.set('outcome', what.outcome);
    query.set('outcomes', 'true');
    return `/api/sessions?${query}`;
}

/** Begin anew, with the filter as it is. */
export async function reload() {
    asked += 1;
    cursor = null;
    await load((page) => page);
}

/** Go on where the list ends. */
export async function more() {
    if (loading.peek() || atEnd.peek() || !cursor) return;
    const known = new Set(sessions.peek().map((each) => each.id));
    await load((page) => [...sessions.peek(), ...page.filter((each) => !known.has(each.id))]);
}

/** Ask for a page, from the cursor on, and put it where it belongs. @param {(page: Session[]) => Session[]} place */
async function load(place) {
    const mine = asked;
    loading.set(true);
    try {
        /** @type {Session[]} */
        let found = [];
        do {
            // A search looks at so much at a time: a page may be empty, and the next one not.
            const page = await api.get(address(filter.peek(), cursor ? { cursor } : {}));
            if (mine !== asked) return;
            cursor = page.cursor;
            found = page.sessions;
        } while (cursor && found.length === 0);
        batch(() => {
            sessions.set(place(found));
            atEnd.set(!cursor);
            failed.set('');
        });
    } catch (error) {
        if (mine === asked) failed.set(error instanceof Error ? error.message : String(error));
    } finally {
        if (mine === asked) loading.set(false);
    }
}

/** Look again at the top, and at what is busy. */
async function refresh() {
    const what = filter.peek();
    if (document.hidden || loading.peek() || what.q.trim()) return;
    const mine = asked;
    try {
        const [top, busy] = await Promise.all([
            api.get(address(what, {})),
            api.get(address({ ...what, busy: true, outcome: '' }, {})),
        ]);
        if (mine !== asked) return;
        sessions.set(merged(sessions.peek(), top.sessions, top.cursor === null, busy.sessions));
        failed.set('');
    } catch {
        // The next look says more; that the server is away is said elsewhere.
    }
}

/**
 * A list with its beginning as it is now.
 * @param {Session[]} known @param {Session[]} top @param {boolean} whole  there is nothing after it @param {Session[]} busy
 */
export function merged(known, top, whole, busy) {
    const since = whole ? -Infinity : (top.at(-1)?.active_at ?? -Infinity);
    const rows = new Map(known.filter((each) => each.active_at < since).map((each) => [each.id, each]));
    const open = new Map(busy.map((each) => [each.id, each]));
    for (const [id, each] of rows) if (each.open_turn && !open.has(id)) rows.set(id, { ...each, open_turn: null });
    for (const each of [...busy.filter((one) => rows.has(one.id)), ...top]) rows.set(each.id, each);
    const next = [...rows.values()].sort((a, b) => b.active_at - a.active_at || (a.id < b.id ? 1 : -1));
    const before = new Map(known.map((each) => [each.id, each]));
    return next.map((each) => same(before.get(each.id), each));
}

/** The value that is there already, if nothing has changed: then nothing is drawn. @param {Session | undefined} old @param {Session} now */
const same = (old, now) => (old && JSON.stringify(old) === JSON.stringify(now) ? old : now);

/** @param {string} id */
export const forget = (id) => sessions.update((now) => now.filter((each) => each.id !== id));

export async function loadAgents() {
    const found = await api.get('/api/agents');
    agents.set(found.agents);
    broken.set(found.broken);
}

/** Begin to look. */
export function start() {
    let timer = 0;
    effect(() => {
        filter();
        clearTimeout(timer);
        timer = window.setTimeout(reload, sessions.peek().length ? 150 : 0);
    });
    setInterval(refresh, EVERY_MS);
    document.addEventListener('visibilitychange', () => refresh());
    loadAgents().catch(() => {});
}

export { refresh };
