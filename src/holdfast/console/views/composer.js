// Where people write: the next message, a word to the turn that runs, or the first message of a conversation.

import { change } from '../api.js';
import { each, h, icon } from '../core/dom.js';
import { computed, signal } from '../core/signals.js';
import { ifStopped } from '../state/journal.js';
import { may } from '../state/me.js';
import { attempt, toast } from '../state/toasts.js';
import { freshId } from '../text/format.js';
import { attachments, messageOf } from './attachments.js';

const SEND = 'M3 10 17 3l-4 14-3.500-5.500Z';

/** @param {{label: string, placeholder: () => string, send: (said: string | any[], once: string, words: string) => Promise<unknown>, extra?: any}} options */
export function field({ label, placeholder, send, extra }) {
    const text = signal('');
    const sending = signal(false);
    const files = attachments();
    const empty = () => !text().trim() && files.held().length === 0;
    /** The same message that could not be sent is the same request when it is sent again. */
    let once = { text: '', key: '' };
    const area = h('textarea', {
        class: 'composer-text',
        rows: '1',
        dir: 'auto',
        'aria-label': label,
        placeholder,
        value: () => text(),
        enterkeyhint: 'send',
        oninput: () => (text.set(area.value), grow()),
        onpaste: (/** @type {ClipboardEvent} */ event) => take(event, event.clipboardData),
        ondragover: (/** @type {DragEvent} */ event) => event.preventDefault(),
        ondrop: (/** @type {DragEvent} */ event) => take(event, event.dataTransfer),
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
            if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                submit();
            }
        },
    });

    /** @param {Event} event @param {DataTransfer | null} from */
    function take(event, from) {
        if (!from?.files.length) return;
        event.preventDefault();
        files.add([...from.files]);
    }

    function grow() {
        area.style.height = 'auto';
        area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
    }

    async function submit() {
        const words = text.peek();
        if (empty() || sending.peek()) return;
        const said = messageOf(words, files.held.peek());
        const same = JSON.stringify(said);
        if (once.text !== same) once = { text: same, key: freshId() };
        sending.set(true);
        if ((await attempt(() => send(said, once.key, words))) !== undefined) {
            text.set('');
            files.clear();
            once = { text: '', key: '' };
            requestAnimationFrame(grow);
        }
        sending.set(false);
        area.focus();
    }

    return h(
        'div',
        { class: 'composer-row' },
        files.list,
        files.button,
        area,
        extra,
        h(
            'button',
            {
                class: 'button primary send',
                type: 'button',
                'aria-label': 'send',
                disabled: () => sending() || empty(),
                onclick: submit,
            },
            icon(SEND),
            h('span', { class: 'wide' }, () => (sending() ? 'Sending …' : 'Send')),
        ),
    );
}

/** @param {import('../state/session.js').Opened} session */
export function composer(session) {
    const running = computed(() => session.live()?.id ?? session.info()?.open_turn ?? null);
    const how = signal(/** @type {'steer' | 'wait'} */ ('steer'));
    const stopping = signal(false);
    /** What was said while a turn ran, and has not been heard yet. @type {import('../core/signals.js').Signal<{text: string, once: string, told: string}[]>} */
    const unheard = signal(/** @type {any[]} */ ([]));

    /** A turn that runs hears a message at its next step; nobody has to watch the field until then. @param {string | any[]} said @param {string} once @param {string} text */
    async function sendMeanwhile(said, once, text) {
        const told =
            how.peek() === 'steer' ? 'the running turn hears it at its next step' : 'it waits for the running turn';
        unheard.update((all) => [...all, { text, once, told }]);
        await attempt(() => session.say(said, how.peek(), once));
        unheard.update((all) => all.filter((each) => each.once !== once));
    }

    async function stop() {
        const id = running();
        if (!id) return;
        stopping.set(true);
        const became = await attempt(() => change('POST', `/api/turns/${id}/cancel`, {}));
        stopping.set(false);
        if (became)
            toast(
                became.state === 'committed'
                    ? 'Stopped. What it had said is kept, marked as interrupted.'
                    : became.state === 'discarded'
                      ? 'Stopped and discarded: the conversation is as it was before.'
                      : 'It has been told to stop, and has not let go yet.',
            );
        await session.look().catch(() => {});
    }

    const told = () => {
        const turn = session.live();
        return turn ? ifStopped(turn) : '';
    };
    return h(
        'section',
        { class: 'composer', 'aria-label': 'write' },
        () =>
            running() &&
            h(
                'div',
                { class: 'running-row' },
                h('span', { class: 'chip live' }, 'a turn is running'),
                h('span', { class: 'told stop-told' }, 'Stop: ', told),
                may('chat') &&
                    h(
                        'button',
                        {
                            class: 'button danger stop',
                            type: 'button',
                            'data-stop': '',
                            disabled: () => stopping(),
                            onclick: stop,
                        },
                        icon('M5 5h10v10H5Z'),
                        () => (stopping() ? 'Stopping …' : 'Stop'),
                    ),
            ),
        each(
            unheard,
            (word) => word.once,
            (word) =>
                h('p', { class: 'unheard' }, h('span', null, word().text), h('small', { class: 'told' }, word().told)),
        ),
        () =>
            may('chat')
                ? field({
                      label: 'message',
                      placeholder: () =>
                          running()
                              ? how() === 'steer'
                                  ? 'Steer the running turn …'
                                  : 'The next message, after this turn …'
                              : 'Write the next message …',
                      send: async (said, once, words) => (
                          running() ? void sendMeanwhile(said, once, words) : await session.say(said, 'wait', once),
                          true
                      ),
                      extra: () =>
                          running() &&
                          h(
                              'select',
                              {
                                  class: 'select',
                                  'aria-label': 'what to do with the message',
                                  onchange: (/** @type {Event} */ event) =>
                                      how.set(/** @type {any} */ (event.target).value),
                              },
                              h('option', { value: 'steer' }, 'steer it'),
                              h('option', { value: 'wait' }, 'after it'),
                          ),
                  })
                : h('p', { class: 'told' }, 'This key may look, and not write: it lacks the scope “chat”.'),
    );
}
