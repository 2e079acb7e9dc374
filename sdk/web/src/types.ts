export type { store } from './store.js';
import type { store } from './store.js';
export type Store = typeof store;
