// The items of a turn, one under the other; what has not changed is not drawn again.

import { each, h } from '../core/dom.js';
import { untracked } from '../core/signals.js';
import { around, itemView } from './items.js';

/**
 * @typedef {object} Body
 * @property {any[]} items
 * @property {Set<string>} [drafts]
 * @property {Set<string>} [running]
 * @property {Set<string>} [waiting]
 * @property {Set<string>} [unseen]
 * @property {Set<string>} [hidden]
 * @property {Map<string, string>} [decided]
 * @property {Map<string, any>} [earlier]
 */

const NONE = /** @type {Set<string>} */ (new Set());

/** @param {() => Body} body @param {(item: any) => Node | null} [tools] */
export function bodyView(body, tools) {
    /** @type {Map<string, any>} */
    let known = new Map();
    const entries = () => {
        const now = body();
        const { calls, results } = around(now.items);
        const next = now.items
            .filter((item) => item.type !== 'result' || !calls.has(item.call))
            .map((item, n) => {
                const key = item.id ?? `unreadable${n}`;
                const facts = [
                    item,
                    results.get(item.id),
                    has(now.drafts, item),
                    has(now.running, item),
                    has(now.waiting, item),
                    has(now.unseen, item),
                    has(now.hidden, item),
                    now.decided?.get(item.id),
                    item.type === 'result' && now.earlier?.get(item.call),
                ];
                const old = known.get(key);
                return old && facts.every((fact, at) => fact === old.facts[at])
                    ? old
                    : { key, facts, calls, results, now };
            });
        known = new Map(next.map((entry) => [entry.key, entry]));
        return next;
    };
    return h(
        'div',
        { class: 'items' },
        each(
            entries,
            (entry) => entry.key,
            (entry) => h('div', { class: 'item-place' }, () => view(entry(), tools)),
        ),
    );
}

/** @param {Set<string> | undefined} set @param {any} item */
const has = (set, item) => set?.has(item.id) ?? false;

/** @param {any} entry @param {((item: any) => Node | null) | undefined} tools */
function view({ facts: [item], calls, results, now }, tools) {
    return untracked(() =>
        itemView(item, {
            calls,
            results,
            drafts: now.drafts,
            running: now.running,
            waiting: now.waiting,
            unseen: now.unseen ?? NONE,
            hidden: now.hidden ?? NONE,
            decided: now.decided,
            earlier: now.earlier,
            tools: now.drafts?.has(item.id) ? undefined : tools,
        }),
    );
}
