// The tree of a chat whose program lets people edit, regenerate and branch: a list that one can walk by keys.

import { h } from '../core/dom.js';
import { signal } from '../core/signals.js';
import { runFrom, treeOf } from '../state/family.js';
import { sessionAt } from '../state/route.js';
import { plural } from '../text/format.js';

const RUN_MAX = 8;
const ENDS = 3;

/** Whether trees are open; it stays as it is from session to session. */
const open = signal(true);

/** @param {import('../state/session.js').Opened} session */
export function familyView(session) {
    return h('div', { class: 'family-place' }, () => {
        const family = session.family();
        const id = session.info()?.id;
        if (!family || !id || family.lines.length < 2) return null;
        const { roots, asides } = treeOf(family, id);
        const lines = family.lines.length - asides.length;
        return h(
            'details',
            {
                class: 'family',
                open: open.peek(),
                ontoggle: (/** @type {Event} */ event) =>
                    open.set(/** @type {HTMLDetailsElement} */ (event.target).open),
            },
            h(
                'summary',
                null,
                `Tree: ${plural(lines, 'line')}${asides.length ? `, ${plural(asides.length, 'side line')}` : ''}` +
                    (family.is_whole ? '' : '; older ones are not shown'),
            ),
            h(
                'div',
                { class: 'family-tree', onkeydown: walk },
                branches(roots, id),
                asides.length > 0 &&
                    h(
                        'details',
                        { class: 'family-asides' },
                        h('summary', null, plural(asides.length, 'side line')),
                        branches(asides, id),
                    ),
            ),
        );
    });
}

/** @param {import('../state/family.js').Node[]} nodes @param {string} shown @returns {Element} */
function branches(nodes, shown) {
    return h(
        'ul',
        { class: nodes.length > 1 ? 'family-branches' : 'family-run' },
        nodes.map((node, n) => branch(node, shown, nodes.length > 1 ? `${n + 1} of ${nodes.length}` : '')),
    );
}

/** @param {import('../state/family.js').Node} first @param {string} shown @param {string} place */
function branch(first, shown, place) {
    const run = runFrom(first);
    const after = /** @type {import('../state/family.js').Node} */ (run.at(-1)).children;
    /** @type {Element[]} */
    const rows = run.map((node, n) => row(node, shown, n ? '' : place));
    const folded = rows.length > RUN_MAX ? rows.splice(ENDS, rows.length - 2 * ENDS) : [];
    if (folded.length)
        rows.splice(
            ENDS,
            0,
            h('details', { class: 'family-more' }, h('summary', null, `${folded.length} more`), folded),
        );
    return h('li', null, rows, after.length > 0 && branches(after, shown));
}

/** @param {import('../state/family.js').Node} node @param {string} shown @param {string} place */
function row({ turn, line, here }, shown, place) {
    return h(
        'a',
        {
            class: `family-turn${here ? ' here' : ''}`,
            href: sessionAt(here ? shown : line.id, turn.id),
            'aria-current': here ? 'true' : null,
            'data-turn': turn.id,
            title: `${turn.asked}\n\n${turn.answered}`,
        },
        place && h('span', { class: 'family-at' }, place),
        h('span', { class: 'family-asked' }, turn.asked || '…'),
        h('span', { class: 'family-answered' }, turn.answered),
        turn.ended_by !== 'completed' && h('span', { class: 'chip warn' }, turn.ended_by.replace('_', ' ')),
        line.keys.length > 0 && turn === line.exchanges.at(-1) && h('span', { class: 'chip' }, line.keys[0]),
    );
}

/** Up and down go from turn to turn, left to the turn before the branch, right into it. @param {KeyboardEvent} event */
function walk(event) {
    const from = /** @type {HTMLElement} */ (event.target);
    if (!from.matches('a.family-turn')) return;
    const all = [
        .../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll('a.family-turn'),
    ].filter((each) => /** @type {HTMLElement} */ (each).offsetParent !== null);
    const at = all.indexOf(from);
    const item = /** @type {Element} */ (from.closest('li'));
    /** @type {Record<string, () => Element | null | undefined>} */
    const ways = {
        ArrowDown: () => all[at + 1],
        ArrowUp: () => all[at - 1],
        ArrowLeft: () => [...(item.parentElement?.closest('li')?.querySelectorAll(':scope > a') ?? [])].at(-1),
        ArrowRight: () => item.querySelector(':scope > ul a.family-turn'),
    };
    const to = ways[event.key]?.();
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    /** @type {HTMLElement} */ (to).focus();
}
