import{a,b,c,d}from"./chunk-JFH7PWC6.js";import"./chunk-7GQO4EUM.js";import"./chunk-IZG44CQ4.js";export{d as css,b as cssCompletionSource,c as cssLanguage,a as defineCSSCompletionSource};
