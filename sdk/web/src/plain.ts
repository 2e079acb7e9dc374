// SHA-256 and HMAC by scripts: for pages that get no WebCrypto from the browser.

import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';

export const digest = (data: Uint8Array): Uint8Array => sha256(data);
export const sign = (key: Uint8Array, data: Uint8Array): Uint8Array => hmac(sha256, key, data);
