// A turn from its records, as far as they have come: a fold without any I/O, the same for a turn that is watched and
// for one whose journal is read later.

/**
 * @typedef {{type: string, id: string, path?: string[], [field: string]: any}} Item
 * @typedef {{kind: 'model' | 'tool' | 'note', label: string, from: number, to: number | null, state: string, depth: number, id: string}} Span
 *   One thing that took time. `to` is null while it goes on.
 * @typedef {object} Playing
 * @property {string} id
 * @property {string} agent  who speaks
 * @property {any} request  what was decided before it began; null if the journal does not say
 * @property {Item[]} items  what it has brought so far, drafts included
 * @property {Set<string>} drafts  the items that may still grow
 * @property {Set<string>} running  calls that have begun and have no result
 * @property {Span[]} spans
 * @property {boolean} acted  a tool that is not read-only has started
 * @property {number} last  the number of the last record
 * @property {number} began
 * @property {any} ended  the turn as it ended, or null
 * @property {string} interrupted
 * @property {number} attempt
 */

/** @param {string} id @returns {Playing} */
export function nothingYet(id) {
    return {
        id,
        agent: '',
        request: null,
        items: [],
        drafts: new Set(),
        running: new Set(),
        spans: [],
        acted: false,
        last: -1,
        began: 0,
        ended: null,
        interrupted: '',
        attempt: 1,
    };
}

/** The turn after some more records. @param {Playing} turn @param {any[]} records @returns {Playing} */
export function advance(turn, records) {
    const next = {
        ...turn,
        items: [...turn.items],
        spans: [...turn.spans],
        drafts: new Set(turn.drafts),
        running: new Set(turn.running),
    };
    for (const record of records) {
        if (record.turn) {
            next.ended = record.turn;
            close(next, Date.now() / 1000);
        } else if (record.event && record.n > next.last) {
            next.last = record.n;
            HAPPENED[record.event.type]?.(next, record.event, record.at_ms / 1000);
        }
    }
    return next;
}

/** @type {Record<string, (turn: Playing, event: any, at: number) => void>} */
const HAPPENED = {
    began(turn, { request }, at) {
        turn.request = request;
        turn.agent = request.agent ?? '';
        turn.began = at;
        turn.items.push(...(request.input ?? []));
    },
    step_started(turn, { path = [], model = '' }, at) {
        turn.spans.push({
            kind: 'model',
            label: model || 'model',
            from: at,
            to: null,
            state: 'running',
            depth: path.length,
            id: `step${turn.spans.length}`,
        });
    },
    item_opened(turn, { item, kind, path, name = '', call_id = '' }) {
        const made = {
            message: { type: 'assistant', agent: turn.agent, content: [{ type: 'text', text: '' }] },
            reasoning: { type: 'reasoning', text: '' },
            call: { type: 'call', name, call_id, arguments: '' },
        }[/** @type {string} */ (kind)];
        if (!made) return;
        turn.items.push({ ...made, id: item, path });
        turn.drafts.add(item);
    },
    grew(turn, { item, text }) {
        const at = turn.items.findLastIndex((each) => each.id === item);
        if (at >= 0) turn.items[at] = grown(turn.items[at], text);
    },
    answered(turn, { items, path = [] }, at) {
        settle(turn, items, path);
        endModel(turn, path, at, 'done');
    },
    step_broken(turn, { items = [], path = [], why = '' }, at) {
        settle(turn, items, path);
        endModel(turn, path, at, why || 'broken off');
    },
    tool_started(turn, { call, read_only = false }, at) {
        const asked =
            turn.items.find((each) => each.id === call) ??
            (turn.request?.carried ?? []).find((/** @type {Item} */ each) => each.id === call);
        if (!read_only) turn.acted = true;
        turn.running.add(call);
        turn.spans.push({
            kind: 'tool',
            label: asked?.name ?? 'tool',
            from: at,
            to: null,
            state: 'running',
            depth: (asked?.path ?? []).length,
            id: call,
        });
    },
    tool_finished(turn, { result }, at) {
        turn.items.push(result);
        turn.running.delete(result.call);
        const span = turn.spans.findLast((each) => each.id === result.call);
        if (span) replace(turn, span, { to: at, state: result.outcome });
    },
    branch_opened(turn, { call, agent, task }, at) {
        turn.items.push(task);
        turn.spans.push({
            kind: 'note',
            label: `→ ${agent}`,
            from: at,
            to: at,
            state: 'done',
            depth: (task.path ?? []).length,
            id: call,
        });
    },
    handed_off(turn, { item }) {
        turn.items.push(item);
        if (!item.path?.length) turn.agent = item.to_agent;
    },
    steered(turn, { items }) {
        turn.items.push(...items);
    },
    compacted(turn, { summary }) {
        turn.items.push(summary);
    },
    interrupted(turn, { by, detail = '' }, at) {
        turn.interrupted = detail || by;
        close(turn, at);
    },
    resumed(turn, { attempt }, at) {
        turn.attempt = attempt;
        close(turn, at);
        turn.spans.push({
            kind: 'note',
            label: `resumed, attempt ${attempt}`,
            from: at,
            to: at,
            state: 'done',
            depth: 0,
            id: `resumed${attempt}`,
        });
    },
    closed(turn, { note }) {
        turn.items.push(note);
    },
    ended(turn, _, at) {
        close(turn, at);
    },
};

/** @param {Item} item @param {string} text @returns {Item} */
function grown(item, text) {
    if (item.type === 'call') return { ...item, arguments: item.arguments + text };
    if (item.type === 'reasoning') return { ...item, text: item.text + text };
    return { ...item, content: [{ type: 'text', text: (item.content?.[0]?.text ?? '') + text }] };
}

/** Drafts of a branch are replaced by what was really said, in their places. @param {Playing} turn @param {Item[]} items @param {string[]} path */
function settle(turn, items, path) {
    const whole = new Map(items.map((each) => [each.id, each]));
    turn.items = turn.items
        .filter((each) => !turn.drafts.has(each.id) || whole.has(each.id) || !samePath(each.path, path))
        .map((each) => whole.get(each.id) ?? each);
    const known = new Set(turn.items.map((each) => each.id));
    turn.items.push(...items.filter((each) => !known.has(each.id)));
    for (const each of turn.items) if (samePath(each.path, path)) turn.drafts.delete(each.id);
}

/** @param {string[] | undefined} one @param {string[]} other */
const samePath = (one, other) => (one ?? []).join('/') === other.join('/');

/** @param {Playing} turn @param {string[]} path @param {number} at @param {string} state */
function endModel(turn, path, at, state) {
    const span = turn.spans.findLast((each) => each.kind === 'model' && each.to === null && each.depth === path.length);
    if (span) replace(turn, span, { to: at, state });
}

/** Whatever goes on ends here. @param {Playing} turn @param {number} at */
function close(turn, at) {
    for (const span of turn.spans)
        if (span.to === null) replace(turn, span, { to: Math.max(at, span.from), state: 'broken off' });
    turn.running.clear();
    turn.drafts.clear();
}

/** @param {Playing} turn @param {Span} span @param {Partial<Span>} change */
function replace(turn, span, change) {
    turn.spans[turn.spans.indexOf(span)] = { ...span, ...change };
}

/** What becomes of a turn that is stopped now, by its own policy. @param {Playing} turn */
export function ifStopped(turn) {
    const policy = turn.request?.policy?.cancel ?? 'keep';
    if (policy === 'keep') return 'What it has said so far is kept, marked as interrupted.';
    if (policy === 'discard') return 'It is discarded: the conversation stays as it was before.';
    return turn.acted
        ? 'A tool has acted, so it is kept, marked as interrupted.'
        : 'No tool has acted yet, so it is discarded: the conversation stays as it was before.';
}
