// The sign of the house: an anchor that holds.

import { s } from '../core/dom.js';

export const mark = () =>
    s(
        'svg',
        { class: 'mark', viewBox: '0 0 24 24', 'aria-hidden': 'true', focusable: 'false' },
        s('circle', { cx: 12, cy: 5, r: 2.5 }),
        s('path', { d: 'M12 7.500V21M7 11h10M4 13.500c.5 4.500 4 7.500 8 7.500s7.500-3 8-7.500' }),
    );
