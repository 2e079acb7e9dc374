'use strict';
exports.greet = () => 'hello';
