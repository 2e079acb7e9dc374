import{a,b,c,d}from"./chunk-BVBIXFO5.js";import"./chunk-QLAQRLYQ.js";import"./chunk-QE7ZPSDQ.js";export{d as css,b as cssCompletionSource,c as cssLanguage,a as defineCSSCompletionSource};
