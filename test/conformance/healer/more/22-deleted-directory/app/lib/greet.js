const { polite } = require('./polite');

exports.greet = (name) => polite('Hello, ' + name);
