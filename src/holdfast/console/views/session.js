// A session: its turns in order, the switch to what the model sees, its line, and a place to write.
//
// Only some turns near the window are in the document, however long the history is. What lies above is fetched, and
// put in, before somebody gets there; what is far away goes out at the other end.

import { each, h, icon } from '../core/dom.js';
import { batch, computed, effect, onDispose, signal, untracked } from '../core/signals.js';
import { me, now } from '../state/me.js';
import { sessionAt } from '../state/route.js';
import { openSession } from '../state/session.js';
import { attempt } from '../state/toasts.js';
import { ago, cost, count, moment, plural, shortId } from '../text/format.js';
import { markdown } from '../text/markdown.js';
import { actionsOf } from './actions.js';
import { composer } from './composer.js';
import { familyView } from './family.js';
import { graph } from './graph.js';
import { turnView } from './turn.js';

const STEP = 30;
const SHOWN_MAX = 90;
const NEAR_PX = 900;

/** What the model sees, or what people do; it stays as it is from session to session. */
export const asModel = signal(false);

/** @param {string} name @param {string} wanted  a turn to show */
export function sessionView(name, wanted) {
    const session = openSession(name);
    const actions = actionsOf(session);
    const column = turns(session, actions, wanted);
    return h(
        'main',
        { class: 'session', id: 'main', tabindex: '-1' },
        header(session, actions, column.show),
        () => session.failure() && h('p', { class: 'banner bad', role: 'alert' }, session.failure()),
        column.view,
        () => !session.missing() && composer(session),
    );
}

// ── above ────────────────────────────────────────────────────────────────────────────────────

/** @param {import('../state/session.js').Opened} session @param {import('./actions.js').Actions} actions @param {(turn: string) => void} show */
function header(session, actions, show) {
    const title = () => session.info()?.title || session.info()?.keys[0] || session.name;
    return h(
        'header',
        { class: 'session-head' },
        h(
            'div',
            { class: 'session-title' },
            h('a', { class: 'back', href: '#/', 'aria-label': 'all sessions' }, icon('M12 4l-6 6 6 6')),
            h('h1', { title, dir: 'auto' }, title),
            () => !session.missing() && switcher(),
            () => actions.sessionMenu(),
        ),
        h(
            'details',
            { class: 'about', open: false, hidden: session.missing },
            h('summary', null, () => summary(session)),
            () => about(session),
        ),
        graph(session, show),
        familyView(session),
    );
}

/** @param {import('../state/session.js').Opened} session */
function summary(session) {
    const info = session.info();
    if (!info) return session.failure() ? 'There is nothing to show.' : 'Loading …';
    const said = [
        info.keys[0] && h('code', null, info.keys[0]),
        info.agent,
        `version ${info.version}`,
        plural(info.items, 'item'),
        `${ago(info.active_at, now())} ago`.replace('now ago', 'just now'),
    ];
    return said.filter(Boolean).map((each, n) => [n ? ' · ' : '', each]);
}

/** @param {import('../state/session.js').Opened} session */
function about(session) {
    const info = session.info();
    if (!info) return null;
    const used = session
        .pages()
        .reduce(
            (sum, { turn: { usage } }) => ({
                input: sum.input + (usage.input_tokens ?? 0),
                output: sum.output + (usage.output_tokens ?? 0),
                cost: sum.cost + (usage.cost_micros ?? 0),
            }),
            { input: 0, output: 0, cost: 0 },
        );
    const line = session.line();
    const remembered = Object.entries(session.annotations()?.state ?? {});
    return h(
        'dl',
        { class: 'facts' },
        fact('Id', h('code', null, info.id)),
        info.keys.length > 0 &&
            fact(
                info.keys.length > 1 ? 'Keys' : 'Key',
                info.keys.map((key, n) => [n ? ', ' : '', h('code', null, key)]),
            ),
        fact('Began', moment(info.created_at)),
        fact(
            session.complete() ? 'Used' : `Used in the last ${plural(session.pages().length, 'turn')}`,
            `${count(used.input)} → ${count(used.output)} tokens${used.cost ? `, ${cost(used.cost, me()?.currency ?? '')}` : ''}`,
        ),
        Object.entries(info.attributes).map(([key, value]) => fact(key, value)),
        line?.past.length > 0 &&
            fact(
                'Forked from',
                line.past.map((/** @type {any} */ each, /** @type {number} */ n) => [
                    n ? ', then ' : '',
                    each.version === null
                        ? `${shortId(each.id)} (deleted)`
                        : h('a', { href: sessionAt(each.id) }, each.keys[0] ?? (each.title || shortId(each.id))),
                    ` at version ${each.at}`,
                ]),
            ),
        line?.forks.length > 0 &&
            fact(
                'Forks',
                line.forks.map((/** @type {any} */ each, /** @type {number} */ n) => [
                    n ? ', ' : '',
                    h('a', { href: sessionAt(each.id) }, each.keys[0] ?? (each.title || shortId(each.id))),
                    ` at ${each.at}`,
                ]),
            ),
        remembered.map(([key, value]) => fact(`Tools remember: ${key}`, h('code', { class: 'state' }, value))),
        fact('Chain', chain(session)),
    );
}

/** @param {string} term @param {any} what */
const fact = (term, what) => [h('dt', null, term), h('dd', null, what)];

/** @param {import('../state/session.js').Opened} session */
function chain(session) {
    return h('span', { class: 'chain' }, () => {
        const found = session.chain();
        if (found === 'checking') return 'checking …';
        const again = h(
            'button',
            { class: 'quiet', type: 'button', 'data-check': '', onclick: () => attempt(session.check) },
            found ? 'check again' : 'check it now',
        );
        if (!found) return ['Every committed turn is hashed over the one before it. ', again];
        if (found.problems.length === 0)
            return [
                h('span', { class: 'chip good' }, 'whole'),
                ` ${plural(found.version, 'turn')} checked, up to `,
                h('code', { title: found.link }, found.link.slice(0, 12)),
                ' ',
                again,
            ];
        return [
            h('span', { class: 'chip bad' }, 'damaged'),
            ' ',
            again,
            h(
                'ul',
                null,
                found.problems.map((/** @type {any} */ each) =>
                    h('li', null, h('code', null, each.code), ` ${each.where}: ${each.what}`),
                ),
            ),
        ];
    });
}

function switcher() {
    /** @param {boolean} model @param {string} text @param {string} title */
    const choice = (model, text, title) =>
        h(
            'button',
            {
                type: 'button',
                'aria-pressed': () => String(asModel() === model),
                title,
                onclick: () => asModel.set(model),
            },
            text,
        );
    return h(
        'div',
        { class: 'switch', role: 'group', 'aria-label': 'whose view' },
        choice(false, 'People', 'everything, as people see it'),
        choice(true, 'Model', 'what the agent’s model sees now (m)'),
    );
}

// ── the turns ────────────────────────────────────────────────────────────────────────────────

/** @param {import('../state/session.js').Opened} session @param {import('./actions.js').Actions} actions @param {string} wanted */
function turns(session, actions, wanted) {
    /** Which of the known turns are in the document: `from` to before `to`; Infinity follows the end. */
    const from = signal(0);
    const to = signal(Infinity);
    const shown = computed(() => session.pages().slice(from(), to()));
    const bottom = signal(true);
    let first = true;

    const scroller = h('div', {
        class: 'turns',
        tabindex: '0',
        role: 'feed',
        'aria-label': 'turns',
        'aria-busy': () => String(!session.annotations()),
        onscroll: scrolled,
    });
    scroller.append(
        h(
            'div',
            { class: 'turns-inner' },
            h('p', { class: 'edge' }, () =>
                !session.annotations() ? '' : from() > 0 || !session.complete() ? 'earlier turns …' : 'the beginning',
            ),
            () =>
                asModel() &&
                session.annotations()?.summary &&
                h(
                    'section',
                    { class: 'summary-card' },
                    h('h4', null, 'Summary: what the model sees in place of the older turns'),
                    h('div', { class: 'prose' }, markdown(session.annotations().summary.text)),
                ),
            () =>
                session.annotations() &&
                session.pages().length === 0 &&
                h('p', { class: 'nothing' }, 'Nothing has been said here yet.'),
            each(
                shown,
                (page) => page.turn.id,
                (page) => turnView(page, session, asModel, actions),
            ),
            () => to() !== Infinity && h('p', { class: 'edge' }, 'later turns …'),
        ),
    );
    const jump = h(
        'button',
        { class: 'to-end', type: 'button', hidden: () => bottom(), 'aria-label': 'to the latest turn', onclick: toEnd },
        icon('M4 8l6 6 6-6'),
    );

    /** Change what is in the document, and leave what is seen where it is. @param {() => void} work */
    function still(work) {
        const anchor = [...scroller.querySelectorAll('article')].find(
            (each) => each.getBoundingClientRect().bottom > scroller.getBoundingClientRect().top,
        );
        const before = anchor?.getBoundingClientRect().top ?? 0;
        work();
        if (anchor?.isConnected) scroller.scrollTop += anchor.getBoundingClientRect().top - before;
    }

    let busy = false;
    let last = 0;
    async function scrolled() {
        const { scrollTop, scrollHeight, clientHeight } = scroller;
        const atEnd = to.peek() === Infinity && scrollHeight - scrollTop - clientHeight < 60;
        // What is measured late makes the page longer; that is nobody's wish to leave its end.
        if (atEnd || scrollTop < last - 1) bottom.set(atEnd);
        last = scrollTop;
        if (busy) return;
        busy = true;
        try {
            if (scrollTop < NEAR_PX) await earlier();
            else if (scrollHeight - scrollTop - clientHeight < NEAR_PX) later();
        } finally {
            busy = false;
        }
    }

    async function earlier() {
        if (from.peek() === 0) {
            const known = session.pages.peek().length;
            if (session.complete.peek()) return;
            await attempt(session.older);
            // What has come lies before everything else: the window stays on the turns that it was on.
            const come = session.pages.peek().length - known;
            if (come <= 0) return;
            still(() => shift(come, to.peek() === Infinity ? Infinity : to.peek() + come));
        }
        still(() => {
            const start = Math.max(0, from.peek() - STEP);
            const end = Math.min(to.peek(), start + SHOWN_MAX);
            shift(start, end >= session.pages.peek().length ? Infinity : end);
        });
    }

    function later() {
        if (to.peek() === Infinity) return;
        still(() => {
            const end = to.peek() + STEP;
            const all = session.pages.peek().length;
            shift(Math.max(0, Math.min(end, all) - SHOWN_MAX), end >= all ? Infinity : end);
        });
    }

    /** @param {number} start @param {number} end */
    function shift(start, end) {
        batch(() => {
            from.set(start);
            to.set(end);
        });
    }

    function toEnd() {
        shift(Math.max(0, session.pages.peek().length - STEP), Infinity);
        scroller.scrollTop = scroller.scrollHeight;
        bottom.set(true);
    }

    /** @param {string} turn */
    async function show(turn) {
        while (!session.pages.peek().some((each) => each.turn.id === turn) && !session.complete.peek()) {
            const known = session.pages.peek().length;
            await attempt(session.older);
            if (session.pages.peek().length === known) return;
        }
        const at = session.pages.peek().findIndex((each) => each.turn.id === turn);
        if (at < 0) return;
        const all = session.pages.peek().length;
        shift(Math.max(0, at - STEP), at + STEP >= all ? Infinity : at + STEP);
        const place = document.getElementById(turn);
        place?.scrollIntoView({ block: 'center' });
        place?.classList.add('found');
        setTimeout(() => place?.classList.remove('found'), 1600);
    }

    // Whoever is at the end stays there while more comes.
    effect(() => {
        session.pages();
        session.live();
        const known = untracked(() => session.annotations());
        if (!known) return;
        if (first) {
            first = false;
            requestAnimationFrame(() => (wanted ? show(wanted) : toEnd()));
        } else if (bottom.peek() && to.peek() === Infinity) {
            if (session.pages.peek().length - from.peek() > SHOWN_MAX) from.set(session.pages.peek().length - STEP);
            requestAnimationFrame(() => (scroller.scrollTop = scroller.scrollHeight));
        }
    });
    const grown = new ResizeObserver(
        () => bottom.peek() && to.peek() === Infinity && (scroller.scrollTop = scroller.scrollHeight),
    );
    grown.observe(/** @type {Element} */ (scroller.firstElementChild));
    onDispose(() => grown.disconnect());
    return { view: h('div', { class: 'turns-place' }, scroller, jump), show };
}
