// The items of a turn, as people read them. Whatever they say was written by somebody we do not trust, so all of it
// goes through text nodes.

import { at, getBlob } from '../api.js';
import { h, icon } from '../core/dom.js';
import { onDispose, signal } from '../core/signals.js';
import { route } from '../state/route.js';
import { ENDS, moment, shortId, size } from '../text/format.js';
import { markdown, partingOf } from '../text/markdown.js';
import { PICTURES } from './attachments.js';

/**
 * @typedef {object} Around  what is known around an item
 * @property {Map<string, any>} results  by the call that they answer
 * @property {Set<string>} calls  the calls that are shown with their results
 * @property {Set<string>} [drafts]
 * @property {Set<string>} [running]
 * @property {Set<string>} [waiting]
 * @property {Map<string, string>} [decided]  what people decided about calls
 * @property {Map<string, any>} [earlier]  calls of other turns, by their ids
 * @property {Set<string>} unseen
 * @property {Set<string>} hidden
 * @property {(item: any) => Node | null} [tools]  what can be done with it
 */

const LONG = 12_000;

/** @type {Record<string, string>} */
const OUTCOMES = {
    ok: 'done',
    error: 'failed',
    not_run: 'not run',
    unknown: 'outcome unknown',
    refused: 'refused',
    not_answered: 'not answered',
};
/** @type {Record<string, string>} */
const OUTCOME_TOLD = {
    not_run: 'It was asked for and never started.',
    unknown: 'It had started when the turn broke off. Nobody knows what it did; it was not run again.',
    refused: 'A rule, or a person, said no.',
    not_answered: 'The client went on without answering.',
};

/** What is known around these items, from the items themselves. @param {any[]} items */
export function around(items) {
    const calls = new Set(items.filter((each) => each.type === 'call').map((each) => each.id));
    const results = new Map(items.filter((each) => each.type === 'result').map((each) => [each.call, each]));
    return { calls, results };
}

/** One item, or nothing if it is shown with another one. @param {any} item @param {Around} ctx @returns {Node | null} */
export function itemView(item, ctx) {
    const made = KINDS[item.type]?.(item, ctx) ?? unreadable();
    if (!made) return null;
    const depth = Math.min(3, (item.path ?? []).length);
    const aside = [
        ctx.unseen.has(item.id) && 'the model does not see this',
        ctx.hidden.has(item.id) && 'hidden from people',
    ]
        .filter(Boolean)
        .join(' · ');
    return h(
        'div',
        {
            class: `item item-${item.type}${depth ? ` depth depth-${depth}` : ''}${aside ? ' aside' : ''}`,
            'data-item': item.id,
        },
        made,
        aside && h('p', { class: 'aside-note' }, aside),
        ctx.tools?.(item),
    );
}

/** @type {Record<string, (item: any, ctx: Around) => Node | Node[] | null>} */
const KINDS = {
    user: (item) => [
        h('h4', { class: 'who' }, item.name || 'User'),
        h('div', { class: 'said prose' }, parts(item.content)),
    ],
    system: (item) => [
        h('h4', { class: 'who' }, 'Instructions'),
        h('div', { class: 'said prose' }, parts(item.content)),
    ],
    assistant: (item, ctx) =>
        [
            h('h4', { class: 'who' }, item.agent || 'Agent'),
            ctx.drafts?.has(item.id)
                ? h(
                      'div',
                      { class: 'said draft', dir: 'auto' },
                      item.content?.[0]?.text ?? '',
                      h('span', { class: 'caret', 'aria-hidden': 'true' }),
                  )
                : h('div', { class: 'said prose' }, parts(item.content)),
            mark(item.state),
        ].filter((each) => each !== null),
    reasoning: (item, ctx) =>
        h(
            'details',
            { class: 'thought', open: ctx.drafts?.has(item.id) ?? false },
            h('summary', null, ctx.drafts?.has(item.id) ? 'Thinking …' : 'Thought'),
            h(
                'div',
                { class: 'plain', dir: 'auto' },
                [...(item.summary ?? []), item.text].filter(Boolean).join('\n\n') || 'Its provider does not show it.',
            ),
        ),
    call: callView,
    result: (item, ctx) => (ctx.calls.has(item.call) ? null : resultBox(item, ctx.earlier?.get(item.call))),
    interruption: (item) =>
        h(
            'p',
            { class: 'banner warn' },
            icon('M10 3 18 17H2ZM10 8v4M10 14.5v.5'),
            h(
                'span',
                null,
                h('strong', null, `Interrupted: ${ENDS[item.ended_by] ?? item.ended_by}.`),
                item.detail ? ` ${item.detail}` : '',
            ),
        ),
    handoff: (item) =>
        h(
            'p',
            { class: 'banner' },
            icon('M3 10h12M11 6l4 4-4 4'),
            h(
                'span',
                null,
                'Handed over from ',
                h('strong', null, item.from_agent),
                ' to ',
                h('strong', null, item.to_agent),
            ),
        ),
    summary: (item) =>
        h(
            'details',
            { class: 'summary-item' },
            h('summary', null, 'Summed up for the model'),
            h('div', { class: 'prose' }, markdown(item.text)),
        ),
    foreign: (item) =>
        h(
            'details',
            { class: 'summary-item' },
            h('summary', null, 'An item for other servers: ', h('code', null, item.original.kind)),
            h('pre', { class: 'plain' }, item.original.json),
        ),
    unreadable: () => unreadable(),
};

const unreadable = () =>
    h('p', { class: 'banner bad' }, 'This item cannot be read: it is damaged, or a newer version has written it.');

/** @param {string | undefined} state */
function mark(state) {
    if (state === 'interrupted') return h('p', { class: 'chip warn' }, 'broken off here');
    if (state === 'set_aside') return h('p', { class: 'chip' }, 'set aside: the step was tried again');
    return null;
}

/** @param {any} call @param {Around} ctx */
function callView(call, ctx) {
    const result = ctx.results.get(call.id);
    const running = ctx.running?.has(call.id);
    const waits = !result && (ctx.waiting?.has(call.id) ?? false);
    const decided = decision(ctx.decided?.get(call.id));
    const outcome =
        result?.outcome ?? (running ? 'running' : ctx.drafts?.has(call.id) ? 'writing' : waits ? 'waits' : 'asked');
    const word =
        OUTCOMES[outcome] ??
        {
            running: 'running',
            writing: 'writing',
            waits: call.waits_for === 'approval' ? 'waits for approval' : 'waits for the client',
            asked: decided?.verdict ?? 'asked for',
        }[/** @type {string} */ (outcome)];
    const box = h(
        'details',
        { class: `call outcome-${outcome}`, open: outcome === 'unknown' },
        h(
            'summary',
            null,
            icon('M12.5 3.5a4 4 0 0 0-5 5L3 13v4h4l4.5-4.5a4 4 0 0 0 5-5L14 10l-2-.5L11.500 8Z'),
            h('code', { class: 'call-name' }, call.name),
            h('span', { class: 'call-arguments' }, oneLine(call.arguments)),
            h('span', { class: 'chip outcome' }, word),
        ),
        h('h5', null, 'Arguments'),
        pre(pretty(call.arguments)),
        result && [
            h('h5', null, 'Result'),
            OUTCOME_TOLD[result.outcome] && h('p', { class: 'told' }, OUTCOME_TOLD[result.outcome]),
            result.content?.length ? parts(result.content, true) : null,
        ],
    );
    if (!decided) return box;
    const { verdict, key, by, at } = decided;
    return [box, h('p', { class: 'decided', title: key }, `${call.name} was ${verdict} ${by}, ${at}`)];
}

/** What a person decided about a call, with the key and the time. @param {string | undefined} noted */
function decision(noted) {
    const [verdict, key, at] = noted?.split(' ') ?? [];
    if (!verdict) return null;
    return { verdict, key, by: key === '-' ? 'without a key' : `by ${shortId(key)}`, at: moment(Number(at) / 1000) };
}

/** The result of a call in an earlier turn. @param {any} item @param {any} call  if it is known */
function resultBox(item, call) {
    return h(
        'details',
        { class: `call outcome-${item.outcome}` },
        h(
            'summary',
            null,
            h('span', null, call ? 'Result of' : 'Result of an earlier call'),
            call && h('code', { class: 'call-name' }, call.name),
            call && h('span', { class: 'call-arguments' }, oneLine(call.arguments)),
            h('span', { class: 'chip outcome' }, OUTCOMES[item.outcome] ?? item.outcome),
        ),
        OUTCOME_TOLD[item.outcome] && h('p', { class: 'told' }, OUTCOME_TOLD[item.outcome]),
        parts(item.content ?? [], true),
    );
}

/** @param {any[]} content @param {boolean} [raw]  as it is, not as Markdown */
export function parts(content, raw = false) {
    return content.map((part) => {
        if (part.type === 'text') return raw ? pre(part.text) : long(part.text);
        if (part.type === 'refusal') return h('p', { class: 'refusal', dir: 'auto' }, part.text);
        return attachment(part);
    });
}

/** A long text in two parts; the second one is read when it is opened. @param {string} text */
function long(text) {
    if (text.length <= LONG + LONG / 4) return markdown(text);
    const parting = partingOf(text, LONG);
    const opened = signal(false);
    const toggled = (/** @type {Event} */ event) =>
        opened.set(/** @type {HTMLDetailsElement} */ (event.currentTarget).open || opened.peek());
    return [
        ...markdown(text.slice(0, parting)),
        h(
            'details',
            { class: 'rest', ontoggle: toggled },
            h('summary', null, `${size(text.length - parting)} more`),
            h('div', { class: 'prose' }, () => opened() && markdown(text.slice(parting))),
        ),
    ];
}

/** @param {string} text */
function pre(text) {
    return h(
        'pre',
        { class: 'code', tabindex: '0', role: 'region', 'aria-label': 'output' },
        text.length > 60_000 ? `${text.slice(0, 60_000)}\n… ${size(text.length - 60_000)} more` : text,
    );
}

/** Pictures of known kinds are shown; everything else says what it is. @param {any} part */
function attachment(part) {
    const { source } = part;
    const kind = source?.media_type ?? '';
    const name = part.name || part.type;
    if (part.type === 'image' && PICTURES.has(kind)) {
        if (source.type === 'inline') return picture(inlineBytes(source));
        if (source.type === 'blob') return picture(storedBytes(source));
    }
    const where =
        source?.type === 'link'
            ? source.url
            : [kind, source?.size_bytes !== undefined && size(source.size_bytes)].filter(Boolean).join(', ');
    return h(
        'p',
        { class: 'attachment' },
        icon('M5 2h7l4 4v12H5ZM12 2v4h4'),
        h('bdi', { class: 'attachment-name' }, name),
        h('small', null, where),
    );
}

/** @param {{media_type: string, data: string}} source */
async function inlineBytes(source) {
    const bytes = Uint8Array.from(atob(source.data), (char) => char.charCodeAt(0));
    return new Blob([bytes], { type: source.media_type });
}

/** A picture that lies in the store, of the session that is shown. @param {{media_type: string, digest: string}} source */
async function storedBytes(source) {
    const found = await getBlob(`/api/sessions/${at(route.peek().name)}/blobs/${at(source.digest)}`);
    return new Blob([found], { type: source.media_type });
}

/** @param {Promise<Blob>} bytes */
function picture(bytes) {
    const url = signal('');
    const failed = signal(false);
    bytes.then((blob) => url.set(URL.createObjectURL(blob))).catch(() => failed.set(true));
    onDispose(() => URL.revokeObjectURL(url.peek()));
    return h('span', { class: 'picture-place' }, () =>
        failed()
            ? h('small', { class: 'told' }, 'This picture is not in the store any more.')
            : url() && h('img', { class: 'picture', src: url(), alt: 'a picture in the conversation' }),
    );
}

/** @param {string} json */
function pretty(json) {
    try {
        return JSON.stringify(JSON.parse(json), null, 2);
    } catch {
        return json;
    }
}

/** @param {string} text */
const oneLine = (text) => (text === '{}' ? '' : text.replace(/\s+/g, ' ').slice(0, 160));
