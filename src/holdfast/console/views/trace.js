// A turn as a trace: its steps and calls with their times, tokens and costs, and what the model was told in each step.

import { get } from '../api.js';
import { h } from '../core/dom.js';
import { signal } from '../core/signals.js';
import { may } from '../state/me.js';
import { attempt } from '../state/toasts.js';
import { cost, count, duration } from '../text/format.js';
import { bodyView } from './body.js';
import { timeline } from './timeline.js';

/** @typedef {import('../core/signals.js').Signal<any>} AnySignal */

/** The button that opens the trace of a turn, and the trace. @param {string} id  of the turn */
export function traceOf(id) {
    const opened = signal(false);
    return [
        h(
            'button',
            {
                class: 'quiet',
                type: 'button',
                'aria-expanded': () => String(opened()),
                'data-trace': '',
                onclick: () => opened.set(!opened.peek()),
            },
            'trace',
        ),
        () => opened() && traceView(id),
    ];
}

/** @param {string} id */
export function traceView(id) {
    /** @type {AnySignal} */
    const found = signal(/** @type {any} */ (null));
    /** @type {AnySignal} */
    const prompt = signal(/** @type {any} */ (null));
    attempt(() => get(`/api/turns/${id}/trace`)).then((trace) => trace && found.set(trace));
    /** @param {number} step */
    const tell = async (step) =>
        prompt.set(
            prompt.peek()?.step === step
                ? null
                : ((await attempt(() => get(`/api/turns/${id}/prompt?step=${step}`))) ?? null),
        );
    return h('div', { class: 'trace' }, () => found() && traced(found(), tell), () => prompt() && promptView(prompt()));
}

/** @param {any} trace @param {(step: number) => void} tell */
function traced(trace, tell) {
    const { turn, spans, currency } = trace;
    const shown = {
        began: turn.began_at,
        spans: spans.map((/** @type {any} */ span) => ({
            ...span,
            label: span.step ? `${span.step}  ${span.name || span.agent || 'model'}` : span.name || span.kind,
            kind: span.kind === 'call' ? 'tool' : 'model',
            from: span.began_at,
            to: span.ended_at,
            state: span.outcome.replace('_', ' '),
            depth: span.path.length,
        })),
    };
    return [
        spans.length
            ? timeline(
                  () => shown,
                  () => turn.ended_at ?? Date.now() / 1000,
                  (span) => about(span, turn.began_at, currency, tell),
              )
            : h('p', { class: 'told' }, 'Nothing is kept of it.'),
        h('p', { class: 'told' }, total(trace)),
    ];
}

/** @param {any} span @param {number} began @param {string} currency @param {(step: number) => void} tell */
const about = (span, began, currency, tell) =>
    h(
        'span',
        { class: 'span-about' },
        [
            `at ${duration(Math.max(0, span.from - began))}`,
            span.first_at && `first words after ${duration(Math.max(0, span.first_at - span.from))}`,
            span.usage && used(span.usage, currency),
        ]
            .filter(Boolean)
            .join(' · '),
        span.step &&
            may('admin') &&
            h('button', { class: 'quiet', type: 'button', 'data-prompt': String(span.step), onclick: () => tell(span.step) }, 'prompt'),
    );

/** @param {any} usage @param {string} currency */
const used = (usage, currency) =>
    [
        `${count(usage.input_tokens)} → ${count(usage.output_tokens)} tokens`,
        usage.cached_tokens > 0 && `${count(usage.cached_tokens)} cached`,
        usage.cost_micros > 0 && cost(usage.cost_micros, currency),
    ]
        .filter(Boolean)
        .join(', ');

/** @param {any} trace */
const total = ({ turn, currency, timed_by: timedBy }) =>
    [
        `In all ${duration((turn.ended_at ?? Date.now() / 1000) - turn.began_at)}, ${used(turn.usage, currency)}.`,
        timedBy === 'ids' && 'Its journal went with its commit: times are those at which items began.',
    ]
        .filter(Boolean)
        .join(' ');

/** @param {any} prompt */
const promptView = (prompt) =>
    h(
        'section',
        { class: 'prompt', 'aria-label': `prompt of step ${prompt.step}` },
        h('h4', null, `What the model was told in step ${prompt.step}`),
        prompt.agent_changed && h('p', { class: 'banner warn' }, 'The agent has changed since: its instructions may have been others.'),
        h('pre', { class: 'code', tabindex: '0', role: 'region', 'aria-label': 'instructions' }, prompt.instructions ?? 'The agent is not served any more.'),
        bodyView(() => ({ items: prompt.items })),
    );
