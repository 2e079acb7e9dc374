import type { Duration } from '@bufbuild/protobuf/wkt';

export const millisOf = (d: Duration) => Number(d.seconds) * 1000 + d.nanos / 1e6;
