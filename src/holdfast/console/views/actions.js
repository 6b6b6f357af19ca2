// What can be done with a session, a turn or an item: each says what it will do, and how to get back.

import * as api from '../api.js';
import { h } from '../core/dom.js';
import { may } from '../state/me.js';
import { go, sessionAt } from '../state/route.js';
import { forget, refresh } from '../state/sessions.js';
import { attempt, toast } from '../state/toasts.js';
import { ask, menu } from './dialog.js';

/** @typedef {ReturnType<typeof actionsOf>} Actions */

/** @param {import('../state/session.js').Opened} session */
export function actionsOf(session) {
    const key = () => session.info.peek()?.keys[0] ?? null;

    /** @param {number} version */
    async function fork(version) {
        const answer = await ask({
            title: `Fork at version ${version}`,
            text: [
                `A new session begins as this one stood at version ${version}, with its state and its annotations.`,
                'This one does not change. To undo it, delete the fork.',
            ],
            action: 'Fork',
        });
        if (answer === null) return;
        const made = await attempt(() => api.change('POST', `${session.path}/fork`, { version }));
        if (!made) return;
        toast(`Forked at version ${version}.`, {
            link: { href: sessionAt(session.name), text: 'Back to the original' },
        });
        refresh();
        go(sessionAt(made.id));
    }

    /** @param {number} version */
    async function rewind(version) {
        const name = key();
        if (name === null) return;
        const old = session.info.peek()?.id ?? '';
        const answer = await ask({
            title: `Rewind to version ${version}`,
            text: [
                `From now on the key “${name}” means a fork of this session at version ${version}. Clients that use the key go on from there.`,
                `Nothing is lost: the history as it is now stays where it is, under its id ${old}.`,
            ],
            action: 'Rewind',
        });
        if (answer === null) return;
        const made = await attempt(() => api.change('POST', `/api/sessions/${api.at(name)}/rewind`, { version }));
        if (!made) return;
        toast(`“${name}” is at version ${version} again.`, {
            link: { href: sessionAt(old), text: 'What it was before' },
        });
        refresh();
        go(sessionAt(made.id));
    }

    async function rename() {
        const before = session.info.peek()?.title ?? '';
        const title = await ask({
            title: 'Title',
            text: ['What lists call this session. It stands beside the history, which does not change.'],
            action: 'Save',
            field: { label: 'Title', value: before },
        });
        if (title === null || title === before) return;
        const named = (/** @type {string} */ next) =>
            attempt(async () => session.info.set(await api.change('PATCH', session.path, { title: next })));
        await named(title);
        toast('Renamed.', { undo: () => named(before) });
    }

    async function name() {
        const next = await ask({
            title: 'Name',
            text: [
                'One more name by which clients find this session. Lists show it by itself from then on.',
                'A line of a chat stays part of the chat.',
            ],
            action: 'Save',
            field: { label: 'Name', value: '' },
        });
        if (!next) return;
        const named = await attempt(() => api.change('POST', `${session.path}/name`, { key: next }));
        if (!named) return;
        session.info.set(named);
        toast(`“${next}” means this session.`);
        refresh();
    }

    async function exportAll() {
        const blob = await attempt(() => api.getBlob(`${session.path}/export`));
        if (!blob) return;
        const url = URL.createObjectURL(new Blob([blob], { type: 'application/octet-stream' }));
        const link = h('a', { download: `${session.info.peek()?.id}.jsonl` });
        /** @type {HTMLAnchorElement} */ (link).href = url;
        link.click();
        setTimeout(() => URL.revokeObjectURL(url), 10_000);
        toast('Exported: the session, its past and everything that belongs to it, as lines of JSON.');
    }

    async function compact() {
        const answer = await ask({
            title: 'Sum up for the model',
            text: [
                'The agent’s model writes a summary, and from the next turn on sees it in place of the older turns.',
                'People still see everything. To undo it, hide the summary from the model.',
            ],
            action: 'Sum up',
        });
        if (answer === null) return;
        const made = await attempt(() => api.change('POST', `${session.path}/compact`, {}));
        if (made) toast(`Summed up ${made.items} items.`);
        await session.refresh();
    }

    async function reset() {
        const name = key();
        const old = session.info.peek()?.id ?? '';
        const answer = await ask({
            title: 'Begin anew',
            text: [
                `From now on the key “${name}” means a new, empty session. The next message with this key begins it.`,
                `This history stays where it is, under its id ${old}.`,
            ],
            action: 'Begin anew',
        });
        if (answer === null || name === null) return;
        const made = await attempt(() => api.change('POST', `/api/sessions/${api.at(name)}/reset`, {}));
        if (!made) return;
        toast(`“${name}” is empty now.`, { link: { href: sessionAt(old), text: 'What it was before' } });
        go(sessionAt(made.id));
    }

    async function remove() {
        const info = session.info.peek();
        const answer = await ask({
            title: 'Delete this session',
            text: [
                `“${info?.title || info?.id}” is gone at once, for everybody, and its key is free again. An open turn ends.`,
                'This cannot be undone. Forks of it keep what they share with it.',
            ],
            action: 'Delete',
            danger: true,
        });
        if (answer === null || !info) return;
        if (!(await attempt(() => api.change('DELETE', session.path, undefined)))) return;
        forget(info.id);
        toast('Deleted.');
        go('#/');
    }

    /** @param {any} item @param {string} who @param {boolean} shown */
    async function show(item, who, shown) {
        const told = { item: item.id, [`show_to_${who}`]: shown };
        if ((await attempt(() => session.remark(told).then(() => true))) === undefined) return;
        toast(
            shown
                ? `Shown to ${who === 'model' ? 'the model' : 'people'} again.`
                : `Hidden from ${who === 'model' ? 'the model' : 'people'}; the history still has it.`,
            { undo: () => show(item, who, !shown) },
        );
    }

    /** @param {any} item */
    async function flag(item) {
        const known = (session.annotations.peek()?.flags ?? []).find(
            (/** @type {any} */ each) => each.item === item.id && each.name === 'note',
        );
        const value = await ask({
            title: 'Note',
            text: [
                'A remark of yours beside this item. Neither the model nor the history sees it. Leave it empty to take it away.',
            ],
            action: 'Save',
            field: { label: 'Note', value: known?.value ?? '' },
        });
        if (value === null) return;
        await attempt(() => session.remark({ item: item.id, flag: { name: 'note', value } }));
    }

    return {
        fork,
        rename,
        /** @param {import('../state/session.js').Page} page */
        turnMenu(page) {
            const version = page.turn.version;
            const actions = () => [
                ...(may('chat')
                    ? [
                          {
                              text: 'Fork from here',
                              hint: 'a new session that begins as this one stood',
                              run: () => fork(version),
                          },
                      ]
                    : []),
                ...(may('chat') && key() !== null
                    ? [
                          {
                              text: 'Rewind to here',
                              hint: 'the key goes on from this version',
                              run: () => rewind(version),
                          },
                      ]
                    : []),
                { text: 'Copy the turn’s id', run: () => copy(page.turn.id) },
            ];
            return menu(`what to do with version ${version}`, actions);
        },
        sessionMenu() {
            const info = session.info();
            if (!info) return null;
            return menu('what to do with this session', () => [
                ...(may('chat')
                    ? [
                          { text: 'Rename', run: rename },
                          { text: 'Name …', hint: 'a key more, by which clients find it', run: name },
                          { text: 'Fork', hint: 'at its latest version', run: () => fork(info.version) },
                      ]
                    : []),
                ...(may('chat') && info.keys.length
                    ? [{ text: 'Begin anew', hint: 'let the key mean an empty session', run: reset }]
                    : []),
                ...(may('chat') ? [{ text: 'Sum up for the model', run: compact }] : []),
                { text: 'Copy its id', run: () => copy(info.id) },
                ...(may('admin')
                    ? [
                          { text: 'Export', hint: 'everything, as lines of JSON', run: exportAll },
                          { text: 'Delete', danger: true, run: remove },
                      ]
                    : []),
            ]);
        },
        /** @param {any} item @param {import('../state/session.js').Page} page */
        itemTools(item, page) {
            const note = () =>
                (session.annotations()?.flags ?? []).find(
                    (/** @type {any} */ each) => each.item === item.id && each.name === 'note',
                );
            const noted = h('span', { class: 'note-place' }, () => note() && h('p', { class: 'note' }, note().value));
            if (!may('chat') || !item.id) return noted;
            const unseen = page.unseen.includes(item.id);
            const hidden = page.hidden.includes(item.id);
            return h(
                'div',
                { class: 'item-tools' },
                noted,
                menu('what to do with this item', () => [
                    { text: 'Note …', hint: 'a remark beside it', run: () => flag(item) },
                    {
                        text: unseen ? 'Show to the model' : 'Hide from the model',
                        run: () => show(item, 'model', unseen),
                    },
                    { text: hidden ? 'Show to people' : 'Hide from people', run: () => show(item, 'people', hidden) },
                    { text: 'Copy its id', run: () => copy(item.id) },
                ]),
            );
        },
    };
}

/** @param {string} text */
async function copy(text) {
    await attempt(async () => {
        await navigator.clipboard.writeText(text);
        toast('Copied.');
    });
}
