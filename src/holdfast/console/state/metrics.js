// The server's numbers, as Prometheus reads them, and how they change while somebody looks.

import * as api from '../api.js';
import { onDispose, signal } from '../core/signals.js';

/** As often as the server notes its own: what it kept and what is read here are one curve. */
const EVERY_MS = 5000;
const KEPT = 1000;

/** @typedef {{name: string, labels: Record<string, string>, value: number}} Sample */
/** @typedef {{at: number, samples: Map<string, Sample[]>}} Reading */

/** Oldest first. @type {import('../core/signals.js').Signal<Reading[]>} */
export const readings = signal(/** @type {Reading[]} */ ([]));
export const failure = signal('');
/** @type {import('../core/signals.js').Signal<any>} */
export const nodes = signal(/** @type {any} */ (null));
/** First turns too, whose sessions are in no list. @type {import('../core/signals.js').Signal<import('./activity.js').ListedTurn[]>} */
export const open = signal(/** @type {any[]} */ ([]));

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** @param {string} text */
export function parse(text) {
    /** @type {Map<string, Sample[]>} */
    const found = new Map();
    for (const line of text.split('\n')) {
        const read = line.startsWith('#') ? null : LINE.exec(line);
        if (!read) continue;
        const labels = Object.fromEntries([...(read[2] ?? '').matchAll(LABEL)].map((each) => [each[1], each[2]]));
        const sample = { name: read[1], labels, value: Number(read[3]) };
        const others = found.get(sample.name);
        if (others) others.push(sample);
        else found.set(sample.name, [sample]);
    }
    return found;
}

/** @param {Reading | undefined} reading @param {string} name @param {Record<string, string>} [labels] */
export function total(reading, name, labels = {}) {
    const samples = reading?.samples.get(name) ?? [];
    const wanted = Object.entries(labels);
    return samples
        .filter((each) => wanted.every(([key, value]) => each.labels[key] === value))
        .reduce((sum, each) => sum + each.value, 0);
}

/** What some of a histogram's values stayed below, between two readings. @param {Reading | undefined} from @param {Reading} to @param {string} name @param {number} share */
export function quantile(from, to, name, share) {
    const buckets = (to.samples.get(`${name}_bucket`) ?? []).map((each) => ({
        upto: each.labels.le === '+Inf' ? Infinity : Number(each.labels.le),
        count: each.value - total(from, `${name}_bucket`, { le: each.labels.le }),
    }));
    const all = buckets.at(-1)?.count ?? 0;
    if (all <= 0) return null;
    let [below, least] = [0, 0];
    for (const { upto, count } of buckets) {
        if (count >= all * share)
            return upto === Infinity
                ? least
                : least + ((upto - least) * (all * share - below)) / Math.max(1, count - below);
        [below, least] = [count, upto];
    }
    return least;
}

/** How often something happens, from reading to reading. @param {Reading[]} all @param {(reading: Reading) => number} of */
export const rates = (all, of) =>
    all.slice(1).map((now, n) => Math.max(0, of(now) - of(all[n])) / Math.max(0.5, now.at - all[n].at));

async function read() {
    if (!readings.peek().length) readings.set(past(await api.get('/api/numbers')));
    const text = await api.getText('/metrics');
    readings.update((all) => [...all.slice(1 - KEPT), { at: Date.now() / 1000, samples: parse(text) }]);
    nodes.set(await api.get('/api/nodes'));
}

/** What the server kept of its last hour, as readings. @param {any} kept @returns {Reading[]} */
export function past({ bounds_s: bounds, samples }) {
    /** @param {string} name @param {number[]} counts @returns {[string, Sample[]]} */
    const histogram = (name, counts) => {
        let sum = 0;
        const upto = counts.map((count, n) => {
            sum += count;
            return { name, labels: { le: n < bounds.length ? String(bounds[n]) : '+Inf' }, value: sum };
        });
        return [name, upto];
    };
    return samples.map((/** @type {any} */ sample) => ({
        at: sample.at,
        samples: new Map([
            [
                'holdfast_turns_total',
                Object.entries(sample.ends).map(([end, value]) => ({ name: '', labels: { ended_by: end }, value })),
            ],
            histogram('holdfast_admission_seconds_bucket', sample.admission),
            histogram('holdfast_first_words_seconds_bucket', sample.first_words),
            histogram('holdfast_commit_seconds_bucket', sample.commit),
        ]),
    }));
}

/** Look, as long as the effect that runs now is not disposed. @param {boolean} allowed  whether the key may see numbers */
export function watchMetrics(allowed) {
    const look = async () => {
        if (document.hidden) return;
        try {
            open.set((await api.get('/api/turns?state=open&limit=100')).turns);
            if (allowed) await read();
            failure.set('');
        } catch (error) {
            failure.set(error instanceof Error ? error.message : String(error));
        }
    };
    look();
    const timer = setInterval(look, EVERY_MS);
    onDispose(() => clearInterval(timer));
}
