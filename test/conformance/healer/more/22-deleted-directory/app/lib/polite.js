exports.polite = (text) => text + '!';
