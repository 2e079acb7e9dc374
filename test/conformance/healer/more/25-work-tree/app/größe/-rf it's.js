module.exports = (name) => 'Hallo, ' + name;
