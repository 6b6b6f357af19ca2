// A value that others can depend on, and effects that run again when what they read has changed.
//
// 1. An effect runs once when it is made, and again after any signal that it read in its last run was set.
// 2. Several sets inside `batch`, or inside one effect, cause one run of each effect.
// 3. An effect owns what is made inside it: before it runs again, and when it is disposed, that is disposed first.

/** @typedef {() => void} Dispose */
/** @template T @typedef {{(): T, set(next: T): void, update(change: (now: T) => T): void, peek(): T}} Signal */

/** Who is told of changes to what is read now. @type {Effect | null} */
let reader = null;
/** Whom what is made now belongs to. @type {Owner | null} */
let owner = null;
/** @type {Set<Effect>} */
const pending = new Set();
let depth = 0;

class Owner {
    constructor() {
        /** @type {Dispose[]} */
        this.owned = [];
    }

    clear() {
        for (const dispose of this.owned.splice(0).reverse()) dispose();
    }
}

class Effect extends Owner {
    /** @param {() => void} run */
    constructor(run) {
        super();
        this.run = run;
        /** @type {Set<Set<Effect>>} */
        this.sources = new Set();
        this.alive = true;
    }

    again() {
        if (!this.alive) return;
        this.clear();
        depth += 1;
        try {
            within(this, this, this.run);
        } finally {
            depth -= 1;
            settle();
        }
    }

    clear() {
        for (const readers of this.sources) readers.delete(this);
        this.sources.clear();
        super.clear();
    }

    dispose() {
        this.alive = false;
        this.clear();
    }
}

/** @template T @param {T} value @returns {Signal<T>} */
export function signal(value) {
    /** @type {Set<Effect>} */
    const readers = new Set();
    const read = () => {
        if (reader) {
            readers.add(reader);
            reader.sources.add(readers);
        }
        return value;
    };
    read.peek = () => value;
    read.set = (/** @type {T} */ next) => {
        if (Object.is(next, value)) return;
        value = next;
        for (const each of readers) pending.add(each);
        settle();
    };
    read.update = (/** @type {(now: T) => T} */ change) => read.set(change(value));
    return read;
}

/** Run now, and again whenever something that was read changes. @param {() => void} run @returns {Dispose} */
export function effect(run) {
    const made = new Effect(run);
    onDispose(() => made.dispose());
    made.again();
    return () => made.dispose();
}

/** A value made of others; readers run again only if it comes out different. @template T @param {() => T} make */
export function computed(make) {
    /** @type {Signal<T>} */
    const held = signal(/** @type {any} */ (undefined));
    effect(() => held.set(make()));
    return /** @type {() => T} */ (held);
}

/** Set several signals, and let everybody look once. @template T @param {() => T} work @returns {T} */
export function batch(work) {
    depth += 1;
    try {
        return work();
    } finally {
        depth -= 1;
        settle();
    }
}

/** Read signals without depending on them. @template T @param {() => T} work @returns {T} */
export function untracked(work) {
    return within(owner, null, work);
}

/** Something to do when the effect that runs now is run again or disposed. @param {Dispose} dispose */
export function onDispose(dispose) {
    owner?.owned.push(dispose);
}

/** Everything made inside belongs to the returned disposer. @param {() => void} make @returns {Dispose} */
export function root(make) {
    const made = new Owner();
    within(made, null, make);
    return () => made.clear();
}

/** @template T @param {Owner | null} whose @param {Effect | null} reading @param {() => T} work @returns {T} */
function within(whose, reading, work) {
    const before = /** @type {const} */ ([owner, reader]);
    [owner, reader] = [whose, reading];
    try {
        return work();
    } finally {
        [owner, reader] = before;
    }
}

function settle() {
    if (depth) return;
    let rounds = 0;
    while (pending.size) {
        if (++rounds > 100) throw new Error('signals: effects keep setting what they read');
        const due = [...pending];
        pending.clear();
        for (const each of due) each.again();
    }
}
