// The server, as the page asks it. Every request carries the key that this tab was given, and nothing else does:
// a key is never sent by the browser on its own, so no other page can use it.

import { signal } from './core/signals.js';

const KEY = 'holdfast.key';

/** Whether the server answers. */
export const reachable = signal(true);

/** What the server said instead of what was asked for. */
export class ApiError extends Error {
    /** @param {number} status @param {string} code @param {string} message */
    constructor(status, code, message) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

export const keptKey = () => sessionStorage.getItem(KEY) ?? '';

/** @param {string} key */
export function keepKey(key) {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
}

/**
 * @typedef {{body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} Ask
 * @param {string} method @param {string} path @param {Ask} [ask]
 */
async function send(method, path, { body, headers, signal: until } = {}) {
    const key = keptKey();
    /** @type {Response} */
    let answer;
    try {
        answer = await fetch(path, {
            method,
            signal: until,
            cache: 'no-store',
            credentials: 'omit',
            redirect: 'error',
            headers: {
                ...(key ? { authorization: `Bearer ${key}` } : {}),
                ...(body === undefined ? {} : { 'content-type': 'application/json' }),
                ...headers,
            },
            body: body === undefined ? undefined : JSON.stringify(body),
        });
    } catch (error) {
        if (!until?.aborted) reachable.set(false);
        throw until?.aborted ? error : new ApiError(0, 'unreachable', 'The server does not answer.');
    }
    reachable.set(true);
    if (!answer.ok) throw await problem(answer);
    return answer;
}

/** @param {Response} answer */
async function problem(answer) {
    const said = await answer.json().catch(() => null);
    const error = said?.error ?? {};
    return new ApiError(answer.status, String(error.code ?? answer.status), String(error.message ?? answer.statusText));
}

/** @param {string} path @param {Ask} [ask] */
export const get = async (path, ask) => (await send('GET', path, ask)).json();

/** @param {string} path @param {Ask} [ask] */
export const getText = async (path, ask) => (await send('GET', path, ask)).text();

/** @param {string} path @param {Ask} [ask] */
export const getBlob = async (path, ask) => (await send('GET', path, ask)).blob();

/** @param {string} method @param {string} path @param {unknown} body @param {Record<string, string>} [headers] */
export const change = async (method, path, body, headers) => (await send(method, path, { body, headers })).json();

/** A change of which the headers are wanted, too. @param {string} path @param {unknown} body @param {Record<string, string>} headers */
export async function begin(path, body, headers) {
    const answer = await send('POST', path, { body, headers });
    return {
        body: await answer.json(),
        turn: answer.headers.get('x-turn-id') ?? '',
        session: answer.headers.get('x-session-id') ?? '',
    };
}

/** The events of a stream, one by one, until it ends. @param {string} path @param {AbortSignal} until */
export async function* events(path, until) {
    const answer = await send('GET', path, { signal: until });
    if (!answer.body) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (true) {
        const { done, value } = await reader.read();
        if (done) return;
        text += value;
        const frames = text.split('\n\n');
        text = frames.pop() ?? '';
        for (const frame of frames) {
            const data = frame
                .split('\n')
                .filter((line) => line.startsWith('data: '))
                .map((line) => line.slice(6))
                .join('\n');
            if (data) yield JSON.parse(data);
        }
    }
}

/** A path with a name in it. @param {string} name */
export const at = (name) => encodeURIComponent(name);
