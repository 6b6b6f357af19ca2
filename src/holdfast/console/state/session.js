// One session that somebody looks at: its turns, its open turn as it is played, and what can be done with it.

import * as api from '../api.js';
import { batch, onDispose, signal } from '../core/signals.js';
import { advance, nothingYet } from './journal.js';
import { agents } from './sessions.js';

/** @typedef {import('./journal.js').Playing} Playing */
/** @typedef {{turn: any, items: any[], unseen: string[], hidden: string[], start: number, replayable: boolean, retry_of: string | null}} Page */

const PAGE = 40;
const LOOK_MS = 2000;
const SHOW_MS = 40;

/** Look after a session until the effect that runs now is disposed. @param {string} name  an id or a key */
export function openSession(name) {
    const path = `/api/sessions/${api.at(name)}`;
    /** @type {import('../core/signals.js').Signal<import('./sessions.js').Session | null>} */
    const info = signal(/** @type {any} */ (null));
    /** Oldest first. @type {import('../core/signals.js').Signal<Page[]>} */
    const pages = signal(/** @type {Page[]} */ ([]));
    /** @type {import('../core/signals.js').Signal<any>} */
    const annotations = signal(/** @type {any} */ (null));
    /** @type {import('../core/signals.js').Signal<Playing | null>} */
    const live = signal(/** @type {any} */ (null));
    /** @type {import('../core/signals.js').Signal<any>} */
    const line = signal(/** @type {any} */ (null));
    /** The lines of its chat, if it is one of several. @type {import('../core/signals.js').Signal<import('./family.js').Family | null>} */
    const family = signal(/** @type {any} */ (null));
    /** @type {import('../core/signals.js').Signal<any>} */
    const chain = signal(/** @type {any} */ (null));
    const complete = signal(false);
    const failure = signal('');
    /** There is no such session, or it was deleted. */
    const missing = signal(false);
    const gone = new AbortController();

    let before = /** @type {string | null} */ (null);
    let watching = '';
    let fetching = /** @type {Promise<void> | null} */ (null);

    /** Whatever is new at the end. */
    async function refresh() {
        const found = await api.get(`${path}/history?limit=${PAGE}`, { signal: gone.signal });
        /** @type {Page[]} */
        const fresh = found.pages.reverse();
        const known = pages.peek();
        const joins = known.length === 0 || known.some((each) => each.turn.id === fresh[0]?.turn.id);
        batch(() => {
            annotations.set(found.annotations);
            if (info.peek()?.family) loadFamily();
            if (joins && known.length) {
                pages.set(joined(known, fresh));
            } else {
                before = found.before;
                pages.set(fresh);
                complete.set(!found.before);
            }
        });
    }

    /** Some turns further back. */
    async function older() {
        if (!before || fetching) return fetching ?? undefined;
        fetching = (async () => {
            try {
                const found = await api.get(`${path}/history?limit=${PAGE}&before=${before}`, { signal: gone.signal });
                before = found.before;
                batch(() => {
                    pages.update((now) => [...found.pages.reverse(), ...now]);
                    complete.set(!found.before);
                });
            } finally {
                fetching = null;
            }
        })();
        return fetching;
    }

    async function look() {
        const now = await api.get(path, { signal: gone.signal });
        const known = info.peek();
        info.set(known && JSON.stringify(known) === JSON.stringify(now) ? known : now);
        const shown = annotations.peek();
        if (!shown || shown.version !== now.version || known?.open_turn !== now.open_turn) await refresh();
        if (now.open_turn) watch(now.open_turn);
        failure.set('');
    }

    /** Follow a turn to its end, also across a restart of the server. @param {string} id */
    async function watch(id) {
        if (watching === id) return;
        watching = id;
        let turn = nothingYet(id);
        /** @type {any[]} */
        let come = [];
        const show = () => {
            if (come.length && watching === id) {
                turn = advance(turn, come);
                live.set(turn);
            }
            come = [];
        };
        const timer = setInterval(show, SHOW_MS);
        live.set(turn);
        while (!turn.ended && watching === id && !gone.signal.aborted) {
            try {
                for await (const record of api.events(
                    `/api/turns/${id}/events?starting_after=${turn.last}`,
                    gone.signal,
                )) {
                    come.push(record);
                    if (watching !== id) break;
                }
            } catch (error) {
                if (error instanceof api.ApiError && error.status === 404) break;
            }
            show();
            if (!turn.ended) await pause(500);
        }
        clearInterval(timer);
        if (gone.signal.aborted || watching !== id) return;
        await Promise.all([refresh(), api.get(path).then(info.set)]).catch(() => {});
        if (watching === id) {
            watching = '';
            live.set(null);
        }
    }

    async function keepLooking() {
        while (!gone.signal.aborted) {
            if (!document.hidden || !info.peek()) {
                try {
                    await look();
                } catch (error) {
                    if (gone.signal.aborted) return;
                    failure.set(error instanceof Error ? error.message : String(error));
                    if (error instanceof api.ApiError && [400, 404, 410].includes(error.status)) {
                        missing.set(true);
                        return;
                    }
                }
            }
            await pause(LOOK_MS);
        }
    }

    onDispose(() => {
        watching = '';
        gone.abort();
    });
    keepLooking();
    const loadLine = () => api.get(`${path}/lineage`, { signal: gone.signal }).then(line.set, () => {});
    loadLine();
    function loadFamily() {
        api.get(`${path}/family`, { signal: gone.signal }).then(family.set, () => {});
    }

    return {
        name,
        path,
        info,
        missing,
        pages,
        annotations,
        live,
        line,
        family,
        chain,
        complete,
        failure,
        older,
        refresh,
        look,
        loadLine,
        watch,
        /** Begin a turn with this message, or hand it to the one that runs. @param {string | any[]} input @param {'wait' | 'steer'} busy @param {string} once */
        async say(input, busy, once) {
            // A session's agent is written with its first commit; until then the turn that runs knows it.
            const agent = info.peek()?.agent || live.peek()?.request?.agent || '';
            const begun = await say(info.peek()?.id ?? name, modelOf(agent), input, busy, once);
            watch(begun.turn);
            return begun;
        },
        async check() {
            chain.set('checking');
            try {
                chain.set(await api.get(`${path}/chain`));
            } catch (error) {
                chain.set(null);
                throw error;
            }
        },
        /** @param {any} said */
        async remark(said) {
            annotations.set(await api.change('POST', `${path}/annotations`, said));
            await refresh();
        },
    };
}

/** @typedef {ReturnType<typeof openSession>} Opened */

/** Known turns with their end as it is now. @param {Page[]} known @param {Page[]} fresh */
function joined(known, fresh) {
    const ids = new Set(fresh.map((each) => each.turn.id));
    const before = new Map(known.map((each) => [each.turn.id, each]));
    const kept = known.filter((each) => !ids.has(each.turn.id) && each.turn.id < fresh[0].turn.id);
    return [...kept, ...fresh.map((each) => same(before.get(each.turn.id), each))];
}

/** @param {Page | undefined} old @param {Page} now */
const same = (old, now) => (old && JSON.stringify(old) === JSON.stringify(now) ? old : now);

/** The name by which an agent is asked for. @param {string} agent */
const modelOf = (agent) => agents.peek().find((each) => !agent || each.agent === agent)?.id ?? agent;

/**
 * Begin a turn that goes on without us, and whose every event is kept. What steers a turn has no key: a key stands
 * for a turn of its own.
 * @param {string} conversation @param {string} model @param {string | any[]} input @param {'wait' | 'steer'} busy @param {string} once
 */
export function say(conversation, model, input, busy, once) {
    return api.begin(
        '/v1/responses',
        { model, input, background: true },
        {
            'x-conversation-id': conversation,
            'x-on-busy': busy,
            ...(busy === 'steer' ? {} : { 'idempotency-key': once }),
        },
    );
}

/** What a request brought, as it can be sent again. Null if some of it lies where we cannot read it. @param {any[]} items */
export function resendable(items) {
    const messages = items.filter((each) => each.type === 'user');
    const sent = messages.map((each) => ({ role: 'user', content: each.content.map(partAgain) }));
    return messages.length && sent.every((each) => each.content.every(Boolean)) ? sent : null;
}

/** @param {any} part */
function partAgain(part) {
    if (part.type === 'text') return { type: 'input_text', text: part.text };
    const { source } = part;
    const url =
        source?.type === 'inline'
            ? `data:${source.media_type};base64,${source.data}`
            : source?.type === 'link'
              ? source.url
              : '';
    return part.type === 'image' && url ? { type: 'input_image', image_url: url } : null;
}

/** @param {number} ms */
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
