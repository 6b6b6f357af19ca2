// How numbers and times are said.

/** An id that people can tell from its neighbours. @param {string} id */
export const shortId = (id) => (id.length > 16 ? `${id.slice(0, id.indexOf('_') + 1)}…${id.slice(-6)}` : id);

/** An id of our own. `crypto.randomUUID` is only there over TLS and on loopback. */
export const freshId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, '0')).join('');

/** @param {number} seconds */
export function duration(seconds) {
    if (!Number.isFinite(seconds)) return '–';
    if (seconds < 0.001) return '<1 ms';
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 60) return `${Math.round(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
    return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

/** @param {number} at @param {number} now */
export function ago(at, now) {
    const past = Math.max(0, now - at);
    if (past < 5) return 'now';
    if (past < 60) return `${Math.floor(past)} s`;
    if (past < 3600) return `${Math.floor(past / 60)} min`;
    if (past < 86400) return `${Math.floor(past / 3600)} h`;
    if (past < 86400 * 30) return `${Math.floor(past / 86400)} d`;
    return new Date(at * 1000).toLocaleDateString();
}

/** @param {number} at */
export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

/** With seconds. @param {number} at */
export const exactClock = (at) => new Date(at * 1000).toLocaleTimeString();

/** @param {number} at */
export const moment = (at) => new Date(at * 1000).toLocaleString();

/** @param {number} n */
export const count = (n) =>
    n < 10_000
        ? String(n)
        : n < 1_000_000
          ? `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)} k`
          : `${(n / 1_000_000).toFixed(1)} M`;

/** @param {number} micros */
export const money = (micros) =>
    (micros / 1e6).toLocaleString(undefined, {
        minimumFractionDigits: 2,
        maximumFractionDigits: micros < 10_000 ? 5 : 2,
    });

/** An amount with its unit, as far as the server knows it. @param {number} micros @param {string} currency */
export const cost = (micros, currency) => `${money(micros)} ${currency || 'units'}`;

/** @param {number} bytes */
export const size = (bytes) =>
    bytes < 1024
        ? `${bytes} B`
        : bytes < 1048576
          ? `${(bytes / 1024).toFixed(1)} kB`
          : `${(bytes / 1048576).toFixed(1)} MB`;

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

/** How a turn ended, in words. @type {Record<string, string>} */
export const ENDS = {
    completed: 'completed',
    cancelled: 'stopped on purpose',
    disconnected: 'client went away',
    deadline: 'out of time',
    model_error: 'model failed',
    tool_error: 'tool failed',
    limit: 'limit reached',
    crash: 'server crashed',
    superseded: 'taken over',
    shutdown: 'server shut down',
    deleted: 'session deleted',
};
