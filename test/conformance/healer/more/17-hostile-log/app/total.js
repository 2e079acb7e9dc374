'use strict';
exports.total = (list) => {
  let sum = 0;
  for (const n of list) {
    sum += n;
  }
  return sum;
};
